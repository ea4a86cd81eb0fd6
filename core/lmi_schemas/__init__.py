"""JSON that a dialect and an output formatter both write; `lmi_core` does not use them."""
