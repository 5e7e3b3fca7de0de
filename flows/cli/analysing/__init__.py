"""Look inside trained models, for `courant analyse`."""
