"""The doctor: everything it looks at, and every known failure from its symptom."""
