"""attend: attention of another form: other logits, values or weights than a softmax of sums."""
