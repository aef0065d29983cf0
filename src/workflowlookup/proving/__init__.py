"""Takes proofs: runs commands, and looks at files, git and services, without trusting any of them."""
