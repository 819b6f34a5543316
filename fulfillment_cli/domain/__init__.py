"""The facts and rules of an order's journey: frozen values, no I/O, no imports from outside."""
