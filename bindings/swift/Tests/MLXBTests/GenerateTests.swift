import CMLXB
import Foundation
import Testing

@testable import MLXB

@Suite(.timeLimit(.minutes(5)))
struct GenerateTests {
    static let prompt = "Once upon a time"

    /// Greedy, without end: the tiny model never says its end token within such a number.
    static func long(_ maxTokens: Int = 100_000) -> GenerateOptions {
        GenerateOptions(maxTokens: maxTokens, temperature: 0)
    }

    @Test func eventsComeInOrder() async throws {
        let model = try await TestModels.real.value
        let tokens = try model.tokenize(Self.prompt)
        let options = GenerateOptions(maxTokens: 5, temperature: 0)
        let answer = try await Answer(model.generate(.tokens(tokens), options: options))

        let prompt = tokens.count
        #expect(
            answer.events.prefix(3) == [
                .prefill(done: 0, total: prompt), .prefill(done: prompt - 1, total: prompt),
                .prefill(done: prompt, total: prompt),
            ])
        let result = try #require(answer.result)
        #expect(answer.events.last == .finished(result))
        #expect(result.finish == .length)
        #expect(result.promptTokenCount == prompt)
        #expect(result.generatedTokenCount == 5)
        #expect(answer.tokens.count == 5)
        #expect(try answer.text == model.detokenize(answer.tokens))
        // The same prompt as text.
        let asText = try await Answer(model.generate(.text(Self.prompt), options: options))
        #expect(asText.tokens == answer.tokens)
    }

    @Test func optionsReachTheLibrary() async throws {
        let model = try await TestModels.real.value
        let greedy = try await Answer(
            model.generate(.text(Self.prompt), options: Self.long(8)))

        var drawn = GenerateOptions(maxTokens: 8, temperature: 5, topK: 400, seed: 7)
        let first = try await Answer(model.generate(.text(Self.prompt), options: drawn))
        let again = try await Answer(model.generate(.text(Self.prompt), options: drawn))
        #expect(first.tokens == again.tokens)
        #expect(first.tokens != greedy.tokens)
        drawn.topK = 1
        let narrow = try await Answer(model.generate(.text(Self.prompt), options: drawn))
        #expect(narrow.tokens == greedy.tokens)

        var told = Self.long(1)
        told.logprobs = 3
        told.logitBias = [greedy.tokens[0]: -.infinity]
        let biased = try await Answer(model.generate(.text(Self.prompt), options: told))
        #expect(biased.tokens != [greedy.tokens[0]])
        let token = try #require(
            biased.events.lazy.compactMap { event -> GeneratedToken? in
                if case .token(let token) = event { token } else { nil }
            }.first)
        #expect(token.candidates.count == 3)
        #expect(token.candidates.first?.id == token.id)
        #expect(token.candidates.first?.logprob == token.logprob)
        #expect(try #require(token.logprob) < 0)

        var stopped = Self.long(8)
        stopped.stop = ["never in it", String(greedy.text.suffix(4))]
        let cut = try await Answer(model.generate(.text(Self.prompt), options: stopped))
        #expect(cut.result?.finish == .stopString)
        #expect(cut.result?.stopIndex == 1)
        #expect(greedy.text.hasPrefix(cut.text) && cut.text.count < greedy.text.count)

        var ended = Self.long(8)
        ended.stopTokens = [greedy.tokens[2]]
        let short = try await Answer(model.generate(.text(Self.prompt), options: ended))
        #expect(short.tokens == Array(greedy.tokens.prefix(3)))
        #expect(short.result?.finish == .endOfAnswer)
    }

    @Test(arguments: [0, 1, 5, 40])
    func cancelledTaskEndsTheStream(afterEvents count: Int) async throws {
        let model = try await TestModels.tiny.value
        let before = try await idleBytes()
        let taken = Counter()
        let task = Task {
            let stream = model.generate(.text(Self.prompt), options: Self.long())
            var sawTheEnd = false
            if count == 0 {
                await taken.reach(1)
            }
            for try await event in stream {
                if case .finished = event {
                    sawTheEnd = true
                }
                await taken.add(1)
            }
            return sawTheEnd
        }
        await taken.wait(for: max(count, 1))
        task.cancel()
        #expect(try await task.value == false)
        #expect(await taken.count < 1_000)
        #expect(try await eventually { try activeBytes() == before })
    }

    @Test func droppedStreamFreesTheEngineAtOnce() async throws {
        let model = try await TestModels.real.value
        let before = try await idleBytes()
        var longestStep = Duration.zero
        do {
            let stream = model.generate(.text(Self.prompt), options: Self.long())
            var iterator = stream.makeAsyncIterator()
            var last: ContinuousClock.Instant?
            for _ in 0..<12 {
                guard case .token? = try await iterator.next() else { continue }
                let now = ContinuousClock.now
                longestStep = max(longestStep, last.map { now - $0 } ?? .zero)
                last = now
            }
            #expect(try activeBytes() > before)
        }
        let start = ContinuousClock.now
        let isFreed = try await eventually(within: longestStep * 3) { try activeBytes() == before }
        #expect(isFreed)
        print("freed \(ContinuousClock.now - start) after the drop; a step: \(longestStep)")
    }

    @Test func loopThatBreaksEndsTheGeneration() async throws {
        let model = try await TestModels.tiny.value
        let before = try await idleBytes()
        for try await event in model.generate(.text(Self.prompt), options: Self.long()) {
            if case .token = event {
                break
            }
        }
        #expect(try await eventually { try activeBytes() == before })
    }

    @Test func droppedStreamEndsAGenerationThatWaitsForItsConsumer() async throws {
        let model = try await TestModels.tiny.value
        let before = try await idleBytes()
        do {
            let stream = model.generate(.text(Self.prompt), options: Self.long())
            var iterator = stream.makeAsyncIterator()
            _ = try await iterator.next()
            try await Task.sleep(for: .milliseconds(200))
            #expect(try activeBytes() > before)
        }
        #expect(try await eventually { try activeBytes() == before })
    }

    @Test func streamThatNobodyAsksRunsNothing() async throws {
        let model = try await TestModels.tiny.value
        let before = try await idleBytes()
        let stream = model.generate(.text(Self.prompt), options: Self.long())
        try await Task.sleep(for: .milliseconds(50))
        #expect(try activeBytes() == before)
        withExtendedLifetime(stream) {}
    }

    @Test func slowConsumerPausesTheGeneration() async throws {
        let model = try await TestModels.tiny.value
        let options = Self.long(60)
        let quick = try await Answer(model.generate(.text(Self.prompt), options: options))
        var slow: GenerationResult?
        var tokens: [UInt32] = []
        for try await event in model.generate(.text(Self.prompt), options: options) {
            if case .token(let token) = event {
                tokens.append(token.id)
                try await Task.sleep(for: .milliseconds(40))
            }
            if case .finished(let result) = event {
                slow = result
            }
        }
        #expect(tokens == quick.tokens)
        // All but the few that the buffers hold were made at the consumer's pace.
        #expect(try #require(slow).decodeDuration > .milliseconds(40 * (60 - 30)))
    }

    @Test func twoHundredShortGenerationsNeedNoMoreMemory() async throws {
        let model = try await TestModels.tiny.value
        func generate(_ number: Int) async throws {
            let options = GenerateOptions(maxTokens: 4, stop: ["one", "two"])
            let stream = model.generate(.chat([.user("Number \(number)?")]), options: options)
            if number.isMultiple(of: 4) {
                // One in four is dropped half-way.
                for try await event in stream {
                    if case .token = event {
                        break
                    }
                }
            } else {
                #expect(try await Answer(stream).result?.generatedTokenCount == 4)
            }
        }
        // What is made once and kept: allocator pools, threads' caches.
        for number in 0..<100 {
            try await generate(number)
        }
        let activeBefore = try await idleBytes()
        let residentBefore = try residentBytes()
        for number in 0..<200 {
            try await generate(number)
        }
        #expect(try await eventually { try activeBytes() == activeBefore })
        let growth = try residentBytes() - residentBefore
        print("200 generations: \(growth / 1024) KiB more resident")
        #expect(growth < 1 << 20)
    }

    @Test func twoModelsAtOnceFromTwoTasks() async throws {
        let real = try await TestModels.real.value
        let tiny = try await TestModels.tiny.value
        let options = Self.long(16)
        let realAlone = try await Answer(real.generate(.text(Self.prompt), options: options))
        let tinyAlone = try await Answer(tiny.generate(.text(Self.prompt), options: options))
        async let realToo = Answer(real.generate(.text(Self.prompt), options: options))
        async let tinyToo = Answer(tiny.generate(.text(Self.prompt), options: options))
        let both = try await (realToo, tinyToo)
        #expect(both.0.tokens == realAlone.tokens)
        #expect(both.1.tokens == tinyAlone.tokens)
    }

    /// What is in use while nothing runs. MLX frees some of it a moment after it was given up.
    func idleBytes() async throws -> UInt64 {
        var least = try activeBytes()
        for _ in 0..<10 {
            try await Task.sleep(for: .milliseconds(2))
            least = min(least, try activeBytes())
        }
        return least
    }

    /// Bytes that MLX has in use, for the whole library.
    func activeBytes() throws -> UInt64 {
        var memory = MLXBMemoryStats()
        memory.struct_size = MemoryLayout<MLXBMemoryStats>.size
        try call { mlxbMemory(out: &memory, error: $0) }
        return memory.active_bytes
    }

    /// Bytes of memory that the process holds.
    func residentBytes() throws -> Int {
        #if os(Linux)
            let pages = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8)
                .split(separator: " ")[1]
            return try #require(Int(pages)) * sysconf(Int32(_SC_PAGESIZE))
        #else
            var usage = rusage_info_v0()
            let status = withUnsafeMutablePointer(to: &usage) { usage in
                usage.withMemoryRebound(to: rusage_info_t?.self, capacity: 1) {
                    proc_pid_rusage(getpid(), RUSAGE_INFO_V0, $0)
                }
            }
            #expect(status == 0)
            return Int(usage.ri_phys_footprint)
        #endif
    }
}

/// A number that tasks can wait for.
actor Counter {
    private(set) var count = 0
    private var waiting: [(count: Int, waiter: CheckedContinuation<Void, Never>)] = []

    func add(_ more: Int) {
        reach(count + more)
    }

    func reach(_ count: Int) {
        self.count = count
        for (_, waiter) in waiting.filter({ $0.count <= count }) {
            waiter.resume()
        }
        waiting.removeAll { $0.count <= count }
    }

    func wait(for count: Int) async {
        if self.count < count {
            await withCheckedContinuation { waiting.append((count, $0)) }
        }
    }
}
