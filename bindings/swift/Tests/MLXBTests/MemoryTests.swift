import Testing

@testable import MLXB

@Suite(.timeLimit(.minutes(5)))
struct MemoryTests {
    @Test func limitsAreObeyedAndLifted() async throws {
        let model = try await TestModels.tiny.value
        let before = try await MLXBMemory.statistics()
        #expect(before.activeBytes > 0)
        #expect(before.peakBytes >= before.activeBytes)
        let options = GenerateOptions(maxTokens: 1000, temperature: 0)
        try await MLXBMemory.setLimits(budgetBytes: 1)
        let error = try await failure {
            _ = try await Answer(model.generate(.text("Once"), options: options))
        }
        try await MLXBMemory.setLimits(budgetBytes: nil)
        #expect(error.status == .overBudget)
        _ = try await Answer(
            model.generate(.text("Once"), options: GenerateOptions(maxTokens: 2, temperature: 0)))
        try await MLXBMemory.trim()
        #expect(try await MLXBMemory.statistics().cachedBytes == 0)
        await #expect(throws: MLXBError.self) { try await MLXBMemory.trim(toBytes: -1) }
        await #expect(throws: MLXBError.self) { try await MLXBMemory.setLimits(budgetBytes: 0) }
    }
}
