import CMLXB
import Foundation

/// A count as C takes it, where negative numbers mean something else.
func count<Integer: FixedWidthInteger>(_ value: Int, named name: String) throws -> Integer {
    guard value >= 0 else {
        throw MLXBError(.invalidArgument, "\(name) must not be negative: \(value)")
    }
    return Integer(clamping: value)
}

/// A number as C takes it, where NaN means unset.
func number(_ value: Float, named name: String) throws -> Float {
    guard !value.isNaN else {
        throw MLXBError(.invalidArgument, "\(name) is not a number")
    }
    return value
}

/// Sets a count that is not nil.
func set<Integer: FixedWidthInteger>(
    _ field: inout Integer, to value: Int?, named name: String
) throws {
    if let value {
        field = try count(value, named: name)
    }
}

/// Sets a number that is not nil.
func set(_ field: inout Float, to value: Float?, named name: String) throws {
    if let value {
        field = try number(value, named: name)
    }
}

/// Calls `body` with `text` as C takes it where it takes no length: NUL-terminated.
func withCString<Result>(
    _ text: String, named name: String, _ body: (UnsafePointer<CChar>) throws -> Result
) throws -> Result {
    try refuseNUL(in: text, named: name)
    return try text.withCString(body)
}

/// Calls `body` with `text` NUL-terminated; NULL for nil.
func withOptionalCString<Result>(
    _ text: String?, named name: String, _ body: (UnsafePointer<CChar>?) throws -> Result
) throws -> Result {
    guard let text else {
        return try body(nil)
    }
    return try withCString(text, named: name, body)
}

/// Calls `body` with the path of a file URL.
func withPath<Result>(
    _ url: URL, named name: String, _ body: (UnsafePointer<CChar>) throws -> Result
) throws -> Result {
    guard url.isFileURL else {
        throw MLXBError(.invalidArgument, "\(name) is not a file URL: \(url)")
    }
    return try withCString(url.path(percentEncoded: false), named: name, body)
}

/// Calls `body` with the path of a file URL; NULL for nil.
func withOptionalPath<Result>(
    _ url: URL?, named name: String, _ body: (UnsafePointer<CChar>?) throws -> Result
) throws -> Result {
    guard let url else {
        return try body(nil)
    }
    return try withPath(url, named: name, body)
}

/// Calls `body` with `texts` as an array of NUL-terminated strings.
func withCStrings<Result>(
    _ texts: [String],
    named name: String,
    _ body: (UnsafeBufferPointer<UnsafePointer<CChar>?>) throws -> Result
) throws -> Result {
    var bytes: [CChar] = []
    var starts: [Int] = []
    for text in texts {
        try refuseNUL(in: text, named: name)
        starts.append(bytes.count)
        bytes += text.utf8CString
    }
    return try bytes.withUnsafeBufferPointer { bytes in
        let strings = starts.map { start in bytes.baseAddress.map { $0 + start } }
        return try strings.withUnsafeBufferPointer(body)
    }
}

private func refuseNUL(in text: String, named name: String) throws {
    guard !text.utf8.contains(0) else {
        throw MLXBError(.invalidArgument, "\(name) holds a NUL")
    }
}

/// Calls `body` with the UTF-8 of `text` and its length.
func withUTF8<Result>(
    _ text: String, _ body: (UnsafePointer<CChar>?, Int) throws -> Result
) throws -> Result {
    var text = text
    return try text.withUTF8 { bytes in
        try bytes.withMemoryRebound(to: CChar.self) { try body($0.baseAddress, $0.count) }
    }
}

/// The string that a C call made, which is freed.
func takeString(
    _ body: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>, UnsafeMutablePointer<OpaquePointer?>)
        -> MLXBStatus
) throws -> String {
    var string: UnsafeMutablePointer<CChar>?
    try call { body(&string, $0) }
    defer { mlxbStringFree(string) }
    return string.map { String(cString: $0) } ?? ""
}

/// The tokens that a C call writes into a buffer; `expected` is room enough for most answers.
func takeTokens(
    expected: Int,
    _ body: (
        UnsafeMutableBufferPointer<UInt32>, UnsafeMutablePointer<Int>,
        UnsafeMutablePointer<OpaquePointer?>
    ) -> MLXBStatus
) throws -> [UInt32] {
    var capacity = expected
    while true {
        var count = 0
        do {
            return try [UInt32](unsafeUninitializedCapacity: capacity) { buffer, initialized in
                try call { body(buffer, &count, $0) }
                initialized = count
            }
        } catch let error as MLXBError where error.status == .bufferTooSmall && count > capacity {
            capacity = count
        }
    }
}
