"""What documents mean, as tables: each row and sentence of the language's page, and the rows that prove it."""
