"""What every verb needs: samples, models and one pass over them."""
