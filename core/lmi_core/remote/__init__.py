"""Remote models, in S3 or on the Hugging Face hub, and their copies on this host's disk."""
