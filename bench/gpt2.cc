// Benchmarks training steps of gpt2-124m at (B, T) = (4, 64) in fp32 and bf16 with everything on the device, in tokens/s. To compare, run
// PyTorch (eager, with fused AdamW) on the same shapes within the same minutes.
#include <benchmark/benchmark.h>

#include <thread>

#include "models/model.h"
#include "models/presets.h"
#include "parallel/run/rank.h"

namespace {

using namespace spillway;

constexpr i64 kRows = 4, kPositions = 64;

StepBatch batch(i64 vocabulary) {
  const Shape shape{kRows, kPositions};
  MicroBatch m{empty(shape, DType::int32), empty(shape, DType::int32), empty(shape, DType::int32)};
  for (i64 i = 0; i < shape.elems(); ++i) {
    m.tokens_BT.data<i32>()[i] = static_cast<i32>(i * 7919 % vocabulary);
    m.targets_BT.data<i32>()[i] = static_cast<i32>(i * 104729 % vocabulary);
    m.positions_BT.data<i32>()[i] = static_cast<i32>(i % kPositions);
  }
  StepBatch b;
  b.counted_targets = m.counted_targets = shape.elems();
  b.micro_batches.push_back(std::move(m));
  return b;
}

void gpt2_124m(benchmark::State& state, DType dtype) {
  const models::ModelConfig config = models::preset("gpt2-124m");
  const nn::Sequential model = models::build(config, dtype);
  parallel::PlanRequest request;
  request.model = &model;
  request.layout = parallel::make_layout(model);
  request.placement = parallel::Placement::uniform(request.layout, parallel::Tier::device, parallel::Tier::device, parallel::Tier::device);
  request.scheduling.format = optim::plain_format(dtype);
  request.micro_batch_size = kRows;
  request.sequence_length = kPositions;
  const parallel::Plan plan = make_plan(request);
  MemoryPool device("device", kUnlimited), host("host", kUnlimited);
  ThreadPool threads(static_cast<int>(std::thread::hardware_concurrency()));
  parallel::Rank rank(model, plan, {.device = &device, .host = &host, .threads = &threads});
  rank.load([](const nn::Parameter& p, i64 begin, std::span<double> out) { nn::initial_values(p, 1, begin, out); });
  parallel::StepSettings settings;
  settings.update.learning_rate = 3e-4;
  for (auto _ : state) {
    benchmark::DoNotOptimize(rank.train_step([&] { return batch(config.vocabulary); }, settings).loss);
    ++settings.update.t;
  }
  state.counters["tokens_per_s"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kRows * kPositions), benchmark::Counter::kIsRate);
  state.counters["device_GiB"] = static_cast<double>(device.peak_bytes()) / static_cast<double>(kGiB);
}

void timed(benchmark::internal::Benchmark* bench) {
  bench->Unit(benchmark::kMillisecond)->UseRealTime()->MinWarmUpTime(3)->MinTime(8)->Repetitions(3)->ReportAggregatesOnly();
}

BENCHMARK_CAPTURE(gpt2_124m, fp32, DType::f32)->Apply(timed);
BENCHMARK_CAPTURE(gpt2_124m, bf16, DType::bf16)->Apply(timed);

}  // namespace

BENCHMARK_MAIN();
