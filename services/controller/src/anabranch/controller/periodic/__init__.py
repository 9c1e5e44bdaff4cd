"""What a controller does again and again, beside what it is asked to do."""
