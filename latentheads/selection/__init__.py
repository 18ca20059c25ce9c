"""Selection: which heads speak, for which task, by which law; gates among them."""
