"""Problems of valid documents."""
