# Install rules follow with the sources.
