"""Studies that no paper has: what its lenses say of the same runs."""
