import CMLXB

/// `mlxb_cancel`: asks a call that runs on another thread to stop.
final class Cancellation: Sendable {
    /// Any thread may use it until it is freed, which `deinit` does.
    nonisolated(unsafe) let handle: OpaquePointer

    init() {
        guard let handle = mlxbCancelNew() else {
            fatalError("out of memory")
        }
        self.handle = handle
    }

    deinit {
        mlxbCancelFree(handle)
    }

    func request() {
        mlxbCancelRequest(handle)
    }
}
