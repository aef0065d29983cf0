"""What a client can call, and what tools and protocol share."""
