"""Archives of models, on web servers, in S3 or on this host."""
