"""Two modules for chats in a model's own function."""
