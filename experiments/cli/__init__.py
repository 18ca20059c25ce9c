"""Parts that the command lines share: options, names, errors, tables."""
