"""Shows what the stages found: tables for people (console), plain values for JSON (machine)."""
