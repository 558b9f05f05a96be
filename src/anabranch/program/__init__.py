"""What a user wrote, as frozen values that refuse nonsense when they are made."""
