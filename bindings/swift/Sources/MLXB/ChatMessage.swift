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
    /// - Parameter addGenerationPrompt: Whether the assistant comes next.
    /// - Throws: ``MLXBError``: `notFound` when the model has no template; `template` when it
    ///   does not compile or refuses the conversation, with its own message.
    public func render(
        _ messages: [ChatMessage], addGenerationPrompt: Bool = true
    ) throws -> String {
        let request = ChatRequest(messages: messages, add_generation_prompt: addGenerationPrompt)
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        let json = String(decoding: try encoder.encode(request), as: UTF8.self)
        return try withCString(json, named: "messages") { json in
            try takeString { mlxbChatRender(handle, request: json, prompt: $0, error: $1) }
        }
    }
}

/// The JSON that mlxb_chat_render takes.
private struct ChatRequest: Encodable {
    let messages: [ChatMessage]
    let add_generation_prompt: Bool
}
