"""Gates of heads with exact posteriors: all subsets of the heads of blocks are summed over."""
