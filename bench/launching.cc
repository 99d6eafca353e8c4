// Benchmarks the CPU's work for a block apart from launching its kernels: the tape, shapes and memory of a forward and a backward, run on
// the meta device, where kernels do nothing. A second counter shows the time that an H200's 989 dense bf16 TFLOP/s (NVIDIA's data sheet)
// need for the block's products. As long as the CPU needs less time than that for its work and the launches, the GPU never waits for the
// CPU.
#include <benchmark/benchmark.h>

#include "device/arena.h"
#include "models/model.h"
#include "models/presets.h"
#include "parallel/blocks/block_runner.h"

namespace {

using namespace spillway;

constexpr double kFlopsPerS = 989e12;

// Provides memory for gradients, and ignores each gradient once it is finished.
struct NoGradients final : autograd::GradientSink {
  std::map<std::pair<u32, u8>, Tensor> made;
  Tensor target(u32 parameter, u8 use, const Shape& shape, DType dtype) override {
    return made.try_emplace({parameter, use}, empty(shape, dtype)).first->second;
  }
  void done(u32, u8) override {}
};

void block(benchmark::State& state, const char* preset) {
  const models::ModelConfig config = models::preset(preset);
  const i64 rows = state.range(0), positions = 1024;
  Arena memory;
  const Stream stream{Device::meta(Device::Kind::cuda), nullptr, &memory};
  const StreamScope scope(stream);
  const nn::Sequential model = models::build(config, DType::bf16);
  const std::vector<MicroBatch> batches{nn::empty_batch(model, rows, positions)};
  parallel::BlockRunner runner(model);
  NoGradients gradients;
  for (auto _ : state) {
    state.PauseTiming();
    runner.begin(batches, nn::Mode::train, {}, 1);
    runner.forward({.op = parallel::Op::Forward, .block = 0, .micro_batch = 0});
    state.ResumeTiming();
    runner.forward({.op = parallel::Op::Forward, .block = 1, .micro_batch = 0});
    state.PauseTiming();
    const auto blocks = static_cast<u16>(model.blocks.size());
    for (u16 b = 2; b < blocks; ++b) runner.forward({.op = parallel::Op::Forward, .block = b, .micro_batch = 0});
    for (auto b = static_cast<u16>(blocks - 1); b > 1; --b)
      runner.backward({.op = parallel::Op::Backward, .block = b, .micro_batch = 0}, gradients);
    state.ResumeTiming();
    runner.backward({.op = parallel::Op::Backward, .block = 1, .micro_batch = 0}, gradients);
  }
  i64 elems = 0;
  for (const nn::ParameterUse& use : model.blocks[1]->parameters()) elems += use.parameter->elems();
  state.counters["gpu_us_at_least"] = 6e6 * static_cast<double>(elems * rows * positions) / kFlopsPerS;
}

}  // namespace

BENCHMARK_CAPTURE(block, gpt2_124m, "gpt2-124m")->Arg(1)->Arg(8)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(block, llama3_8b, "llama3-8b")->Arg(1)->Arg(8)->Unit(benchmark::kMicrosecond);
BENCHMARK_MAIN();
