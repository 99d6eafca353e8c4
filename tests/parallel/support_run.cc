#include "support_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "models/model.h"

namespace spillway::test {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder(const fs::path& in) {
  std::string name = (in / "spillway-test-XXXXXX").string();
  if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed for " + name);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() { fs::remove_all(path_); }

StepBatch random_batch(const RunOptions& o, i64 step) {
  const RandomKey key = RandomKey{7}.derive("tokens");
  const Shape shape{o.micro_batch_size, o.sequence_length};
  StepBatch batch;
  batch.cursor = step * o.micro_batches * o.micro_batch_size;
  for (i64 k = 0; k < o.micro_batches; ++k) {
    MicroBatch m{empty(shape, DType::int32), empty(shape, DType::int32), empty(shape, DType::int32)};
    m.first_sample = batch.cursor + k * o.micro_batch_size;
    for (i64 i = 0; i < shape.elems(); ++i) {
      const double u = uniform(key, static_cast<u64>(m.first_sample), static_cast<u64>(i)),
                   v = uniform(key, static_cast<u64>(m.first_sample) + 1, static_cast<u64>(i));
      m.tokens_BT.data<i32>()[i] = static_cast<i32>(u * static_cast<double>(o.model.vocabulary));
      // Other micro-batches ignore other numbers of targets, so that a mean of means would show.
      const bool ignored = v < 0.1 + 0.2 * static_cast<double>(k);
      m.targets_BT.data<i32>()[i] = ignored ? kIgnoredTarget : static_cast<i32>(v * static_cast<double>(o.model.vocabulary));
      m.positions_BT.data<i32>()[i] = static_cast<i32>(i % o.sequence_length);
      m.counted_targets += !ignored;
    }
    batch.counted_targets += m.counted_targets;
    batch.micro_batches.push_back(std::move(m));
  }
  return batch;
}

std::vector<std::vector<double>> read_values(const nn::Sequential& model, const parallel::Plan& plan, parallel::ModelState& at_rest,
                                             optim::StatePart part) {
  std::vector<std::vector<double>> all(model.parameters.size());
  const optim::StateFormat& format = plan.scheduling.format;
  for (const parallel::Group& g : plan.layout.groups) {
    const bool stateless = g.frozen && (part != optim::StatePart::master || format.weight == DType::bf16);
    if (stateless) continue;
    at_rest.scan(g.id, [&](parallel::TileRange range, std::span<const std::byte> weights, std::span<const std::byte> state) {
      for (i64 tile = 0; tile < range.count(); ++tile) {
        std::vector<double> values(parallel::kTileElems);
        optim::read_part(format, part, weights.data() + tile * format.weight_tile_bytes(), state.data() + tile * format.state_tile_bytes(),
                         0, std::span(values));
        const i64 first = (range.begin + tile) * parallel::kTileElems;
        parallel::for_segments(g, first, first + parallel::kTileElems, [&](i64 begin, i64 end, const parallel::Segment* s) {
          if (s) all[s->parameter].insert(all[s->parameter].end(), values.begin() + (begin - first), values.begin() + (end - first));
        });
      }
    });
  }
  return all;
}

namespace {

void add(parallel::TierBytes& sum, const parallel::TierBytes& more) {
  for (size_t t = 0; t < offload::kTiers; ++t) sum.read[t] += more.read[t], sum.written[t] += more.written[t];
}

}  // namespace

parallel::PlanRequest plan_request(const nn::Sequential& model, const RunOptions& o) {
  parallel::PlanRequest request;
  request.model = &model;
  request.layout = parallel::make_layout(model, {.max_bucket_elems = o.max_bucket_elems});
  request.placement = parallel::Placement::uniform(request.layout, o.parameters, o.gradients, o.optimizer, {o.recompute, o.activations});
  request.scheduling.micro_batches = o.micro_batches;
  request.scheduling.prefetch = o.prefetch;
  request.scheduling.format = optim::plain_format(o.dtype);
  request.scheduling.format.master = o.master;
  request.scheduling.format.moments = o.moments;
  request.scheduling.round_gradients = o.round_gradients;
  request.stripe_weights.assign(static_cast<size_t>(o.stripes), 1);
  if (o.stripes > 1) request.stripe_weights[1] = 3;
  request.scheduling.overlap = o.overlap;
  request.scheduling.order = o.order;
  request.adaptive_overlap = o.adaptive;
  request.micro_batch_size = o.micro_batch_size;
  request.sequence_length = o.sequence_length;
  return request;
}

parallel::StepSettings step_settings(const RunOptions& o, i64 step) {
  parallel::StepSettings settings;
  settings.update = {.adamw = {0.9, 0.95, 1e-8, 0.1}, .learning_rate = o.learning_rate, .t = step + 1, .isa = o.isa};
  settings.gradient_clipping = o.clipping ? o.clipping(step) : o.gradient_clipping;
  settings.random = RandomKey{3};
  return settings;
}

RunResult train(const RunOptions& o) {
  const nn::Sequential model = models::build(o.model, o.dtype);
  for (const auto& p : model.parameters) p->frozen = o.freeze && o.freeze(*p);
  const parallel::PlanRequest request = plan_request(model, o);
  RunResult result;
  result.plan = make_plan(request);
  if (o.change_plan) o.change_plan(result.plan);

  const TemporaryFolder folder;
  MemoryPool device("device", result.plan.total[0]), host("host", result.plan.total[1]);
  ThreadPool threads(o.threads);
  auto engine = offload::make_io_engine(o.engine).engine;
  if (o.wrap_engine) engine = o.wrap_engine(std::move(engine));
  parallel::Resources resources{&device, &host, &threads, engine.get(), {}, "test", {}};
  for (i64 i = 0; i < o.stripes; ++i) {
    resources.scratch.push_back({folder.path() / std::to_string(i), request.stripe_weights[static_cast<size_t>(i)]});
    fs::create_directory(resources.scratch.back().folder);
  }
  parallel::Rank rank(model, result.plan, resources);
  rank.load(o.weights ? o.weights : [](const nn::Parameter& p, i64 begin, std::span<double> out) { nn::initial_values(p, 1, begin, out); });
  const offload::Traffic& traffic = rank.state().traffic();
  parallel::TierBytes before;
  for (size_t t = 0; t < offload::kTiers; ++t) before.read[t] = traffic.read_bytes[t], before.written[t] = traffic.written_bytes[t];
  for (i64 s = 0; s < o.steps; ++s) {
    const parallel::StepResult step = rank.train_step([&] { return o.batches ? o.batches(s) : random_batch(o, s); }, step_settings(o, s));
    result.steps.push_back(step);
    result.losses.push_back(step.loss);
    result.norms.push_back(step.grad_norm);
    add(result.planned, moved_bytes(rank.last_program().head));
    add(result.planned, moved_bytes(*rank.last_tail()));
    if (o.between) o.between(rank, s + 1);
  }
  result.head_timings = rank.head_timings();
  rank.settle();
  for (size_t t = 0; t < offload::kTiers; ++t) {
    result.moved.read[t] = traffic.read_bytes[t] - before.read[t];
    result.moved.written[t] = traffic.written_bytes[t] - before.written[t];
  }
  if (o.at_end) o.at_end(rank);
  result.weights = read_values(model, result.plan, rank.state());
  result.m = read_values(model, result.plan, rank.state(), optim::StatePart::m);
  result.v = read_values(model, result.plan, rank.state(), optim::StatePart::v);
  result.peak_bytes = {device.peak_bytes(), host.peak_bytes()};
  return result;
}

void expect_same_run(const RunResult& got, const RunResult& want) {
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.norms, want.norms);
  EXPECT_EQ(got.weights, want.weights);
  EXPECT_EQ(got.m, want.m);
  EXPECT_EQ(got.v, want.v);
  EXPECT_EQ(got.moved.read, got.planned.read);
  EXPECT_EQ(got.moved.written, got.planned.written);
  EXPECT_EQ(got.peak_bytes[1], got.plan.total[1]);
}

}  // namespace spillway::test
