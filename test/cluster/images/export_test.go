package images

// Waits returns how many times the registry has found that it must not send yet, since the
// client has not read enough.
func (r *Registry) Waits() int64 { return r.waits.Load() }
