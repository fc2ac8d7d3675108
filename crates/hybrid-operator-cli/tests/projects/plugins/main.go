package main

func main() {
	for _, w := range ws {
		r, err := reconciler.New(
			reconciler.WithChart(*w.Chart),
			reconciler.WithGroupVersionKind(w.GroupVersionKind),
			reconciler.WithValueTranslator(translator),
			// reconciler.WithPreHook(nothing),
			reconciler.WithPostHook(announce),
		)
	}
}
