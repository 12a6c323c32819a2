import CMLXB
import Foundation

/// One message of a conversation.
public struct ChatMessage: Codable, Hashable, Sendable {
    /// Who says it.
    public var role: Role

    /// What they say.
    public var content: String

    /// A message of any role.
    public init(role: Role, content: String) {
        self.role = role
        self.content = content
    }

    /// How the assistant shall be. Comes first.
    public static func system(_ content: String) -> ChatMessage {
        ChatMessage(role: .system, content: content)
    }

    /// What the person says.
    public static func user(_ content: String) -> ChatMessage {
        ChatMessage(role: .user, content: content)
    }

    /// What the model has answered.
    public static func assistant(_ content: String) -> ChatMessage {
        ChatMessage(role: .assistant, content: content)
    }
}

extension ChatMessage {
    /// Who says a message. Which roles there are is up to the model's template.
    public struct Role: RawRepresentable, Codable, Hashable, Sendable {
        /// The name that the template knows it by.
        public let rawValue: String

        /// A role by its name.
        public init(rawValue: String) {
            self.rawValue = rawValue
        }

        /// Says how the assistant shall be.
        public static let system = Role(rawValue: "system")
        /// The person.
        public static let user = Role(rawValue: "user")
        /// The model.
        public static let assistant = Role(rawValue: "assistant")
    }
}

extension Model {
    /// Writes a conversation as the prompt that the model was trained on, with its own template.
    ///
    /// Control tokens that a message quotes are in it as they are:
    /// ``tokenize(_:addGenerationPrompt:)`` makes a prompt of a conversation in which nobody can
    /// end a turn from inside a message.
    ///
    /// - Parameter addGenerationPrompt: Whether the assistant comes next.
    /// - Throws: ``MLXBError``: `template` when the model has no template, or it does not compile
    ///   or refuses the conversation, with its own message.
    public func render(
        _ messages: [ChatMessage], addGenerationPrompt: Bool = true
    ) throws -> String {
        let request = ChatRequest(messages: messages, add_generation_prompt: addGenerationPrompt)
        return try withCString(request.json(), named: "messages") { json in
            try takeString { mlxbChatRender(handle, request: json, prompt: $0, error: $1) }
        }
    }

    /// Turns a conversation into the token ids of its prompt, which ``Prompt/chat(_:)`` uses. Where
    /// a message quotes a control token, the quote is encoded as plain text.
    ///
    /// - Parameter addGenerationPrompt: Whether the assistant comes next.
    /// - Throws: As ``render(_:addGenerationPrompt:)``.
    public func tokenize(
        _ messages: [ChatMessage], addGenerationPrompt: Bool = true
    ) throws -> [UInt32] {
        let request = ChatRequest(messages: messages, add_generation_prompt: addGenerationPrompt)
        let json = try request.json()
        return try withCString(json, named: "messages") { request in
            try takeTokens(expected: json.utf8.count + 256) { tokens, count, error in
                mlxbChatTokenize(
                    handle, request: request, tokens: tokens.baseAddress, capacity: tokens.count,
                    count: count, stableCount: nil, error: error)
            }
        }
    }
}

/// The JSON that mlxb_chat_render and mlxb_chat_tokenize take.
private struct ChatRequest: Encodable {
    let messages: [ChatMessage]
    let add_generation_prompt: Bool

    func json() throws -> String {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(self), as: UTF8.self)
    }
}
