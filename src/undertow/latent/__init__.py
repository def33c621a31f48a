"""latent."""
