"""The parts of the HTML page: markup, figures as plain data, and one file per section."""
