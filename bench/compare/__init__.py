"""Two checkouts of the project side by side: is one of them slower?"""
