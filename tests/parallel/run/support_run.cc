#include "tests/parallel/run/support_run.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "models/model.h"
#include "parallel/comm/communicator_local.h"
#include "parallel/comm/rank_mesh.h"
#include "parallel/exchange/nccl_exchange.h"

namespace spillway::test {

namespace fs = std::filesystem;

StepBatch random_batch(const RunOptions& o, i64 step, int rank) {
  const RandomKey key = RandomKey{7}.derive("tokens");
  const Shape shape{o.micro_batch_size, o.sequence_length};
  StepBatch batch;
  batch.cursor = step * o.micro_batches * o.ranks * o.micro_batch_size;
  for (i64 k = 0; k < o.micro_batches; ++k) {
    MicroBatch m{empty(shape, DType::int32), empty(shape, DType::int32), empty(shape, DType::int32)};
    m.first_sample = batch.cursor + (k * o.ranks + rank) * o.micro_batch_size;
    for (i64 i = 0; i < shape.elems(); ++i) {
      const double u = uniform(key, static_cast<u64>(m.first_sample), static_cast<u64>(i)),
                   v = uniform(key, static_cast<u64>(m.first_sample) + 1, static_cast<u64>(i));
      m.tokens_BT.data<i32>()[i] = static_cast<i32>(u * static_cast<double>(o.model.vocabulary));
      // The micro-batches ignore different numbers of targets, so that averaging the means of micro-batches would give a wrong loss.
      const bool ignored = v < 0.1 + 0.2 * static_cast<double>(k * o.ranks + rank);
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
  for (const parallel::Group& g : plan.layout.groups) {
    const optim::StateFormat format = plan.scheduling.format_of(g);
    const bool stateless = g.frozen && (part != optim::StatePart::master || is_half(format.weight));
    const bool has_part = part == optim::StatePart::average ? format.average : static_cast<int>(part) <= state_arrays(format.rule);
    if (stateless || !has_part) continue;
    at_rest.scan(g.id, [&](parallel::TileRange range, std::span<const std::byte> weights, std::span<const std::byte> state) {
      const parallel::TileRange own = parallel::intersection(range, plan.stepped(g));
      for (i64 tile = own.begin - range.begin; tile < own.end - range.begin; ++tile) {
        std::vector<double> values(parallel::kTileElems);
        optim::read_part(format, part, weights.data() + tile * format.weight_tile_bytes(), state.data() + tile * format.state_tile_bytes(),
                         0, std::span(values));
        const i64 first = (range.begin + tile) * parallel::kTileElems;
        parallel::for_segments(g, first, first + parallel::kTileElems, [&](i64 begin, i64 end, const parallel::Segment* s) {
          if (!s) return;
          all[s->parameter].resize(static_cast<size_t>(s->elems));
          std::copy(values.begin() + (begin - first), values.begin() + (end - first), all[s->parameter].begin() + (begin - s->begin));
        });
      }
    });
  }
  return all;
}

namespace {

// Returns the stored weights by group and tile, including tiles that other ranks update.
std::map<std::pair<u16, i64>, std::string> read_weights(const parallel::Plan& plan, parallel::ModelState& at_rest) {
  std::map<std::pair<u16, i64>, std::string> tiles;
  const auto tile_bytes = static_cast<size_t>(plan.scheduling.format.weight_tile_bytes());
  for (const parallel::Group& g : plan.layout.groups) {
    at_rest.scan(g.id, [&](parallel::TileRange range, std::span<const std::byte> weights, std::span<const std::byte>) {
      for (i64 t = range.begin; t < range.end; ++t) {
        const auto bytes = weights.subspan(static_cast<size_t>(t - range.begin) * tile_bytes, tile_bytes);
        tiles[{g.id, t}] = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      }
    });
  }
  return tiles;
}

}  // namespace

parallel::PlanRequest plan_request(const nn::Sequential& model, const RunOptions& o, int rank, int pipeline_rank) {
  parallel::PlanRequest request;
  request.model = &model;
  request.layout = parallel::make_layout(model, {.rule = rule_of(o.update), .max_bucket_elems = o.max_bucket_elems});
  request.placement = parallel::Placement::uniform(request.layout, o.parameters, o.gradients, o.optimizer, {o.recompute, o.activations});
  request.placement.keeps_logits = o.keeps_logits;
  request.scheduling.micro_batches = o.micro_batches;
  request.scheduling.prefetch = o.prefetch;
  request.scheduling.format = optim::plain_format(o.dtype);
  request.scheduling.format.master = o.master;
  request.scheduling.format.moments = o.moments;
  request.scheduling.format.rule = rule_of(o.update);
  request.scheduling.format.average = o.average_decay > 0;
  request.scheduling.round_gradients = o.round_gradients;
  request.scheduling.reduce_each = o.reduce_each;
  request.stripe_weights.assign(static_cast<size_t>(o.stripes), 1);
  if (o.stripes > 1) request.stripe_weights[1] = 3;
  request.scheduling.overlap = o.overlap;
  request.scheduling.order = o.order;
  request.scheduling.sharding = {o.zero_stage, rank, o.ranks};
  request.scheduling.pipeline = o.pipeline;
  request.scheduling.pipeline.rank = pipeline_rank;
  request.scheduling.deferred_sixteenths = o.deferred_sixteenths;
  request.adaptive_overlap = o.adaptive;
  if (o.on_gpu) request.device = Device::Kind::cuda;
  request.scheduling.copy_engines = o.on_gpu;
  request.scheduling.streams_steps = o.streams_steps;
  request.gpu_to_gpu = o.gpu_to_gpu;
  request.micro_batch_size = o.micro_batch_size;
  request.sequence_length = o.sequence_length;
  return request;
}

parallel::StepSettings step_settings(const RunOptions& o, i64 step) {
  parallel::StepSettings settings;
  settings.update = {.settings = o.update, .learning_rate = o.learning_rate, .t = step + 1, .average_decay = o.average_decay, .isa = o.isa};
  settings.gradient_clipping = o.clipping ? o.clipping(step) : o.gradient_clipping;
  settings.random = RandomKey{3};
  if (o.detect_anomaly) settings.detect_anomaly = "here";
  return settings;
}

namespace {

void set_own_rates(const RunOptions& o, const nn::Sequential& model, parallel::Update& update) {
  update.own_rates = o.own_rates;
  for (const auto& p : model.parameters) {
    const auto found = std::ranges::find_if(o.own_rates_in, [&](const std::string& part) { return p->name.find(part) != p->name.npos; });
    update.own_rates_of.push_back(found == o.own_rates_in.end() ? u16{0} : static_cast<u16>(1 + (found - o.own_rates_in.begin())));
  }
}

RunResult train_rank(const RunOptions& o, int rank_number, int pipeline_rank, const parallel::MeshEnds& ends) {
  const nn::Sequential model = o.build ? o.build(o.model, o.dtype) : models::build(o.model, o.dtype);
  for (const auto& p : model.parameters) p->frozen |= o.freeze && o.freeze(*p);
  const parallel::PlanRequest request = plan_request(model, o, rank_number, pipeline_rank);
  RunResult result;
  result.plan = make_plan(request);
  if (o.change_plan) o.change_plan(result.plan);

  const TemporaryFolder folder;
  const int gpu = o.gpu_to_gpu ? parallel::Mesh{o.ranks, o.pipeline.ranks}.world_rank(rank_number, pipeline_rank) : 0;
  MemoryPool device("device", result.plan.total[0], "", o.on_gpu ? gpu_memory(gpu, result.plan.total[0]) : system_memory());
  MemoryPool host("host", result.plan.total[1], "", o.on_gpu ? pinned_memory() : system_memory());
  ThreadPool threads(o.threads);
  auto engine = offload::make_io_engine(o.engine).engine;
  if (o.wrap_engine) engine = o.wrap_engine(std::move(engine));
  parallel::Resources resources{&device, &host, &threads, engine.get(), {}, "test", {}, ends.data_ranks.get(), ends.pipeline_ranks.get()};
  for (i64 i = 0; i < o.stripes; ++i) {
    resources.scratch.push_back({folder.path() / std::to_string(i), request.stripe_weights[static_cast<size_t>(i)]});
    fs::create_directory(resources.scratch.back().folder);
  }
  resources.gpu = gpu;
  std::unique_ptr<parallel::RankExchange> exchange;
  if (result.plan.gpu_to_gpu)
    exchange =
        parallel::make_nccl_exchange(result.plan, {gpu, o.nccl_timeout_s, &device, ends.data_ranks.get(), ends.pipeline_ranks.get()});
  if (exchange && o.wrap_exchange) exchange = o.wrap_exchange(std::move(exchange));
  resources.gpu_exchange = exchange.get();
  parallel::Rank rank(model, result.plan, resources);
  rank.load(o.weights ? o.weights : [](const nn::Parameter& p, i64 begin, std::span<double> out) { nn::initial_values(p, 1, begin, out); });
  const offload::Traffic& traffic = rank.state().traffic();
  parallel::TierBytes before;
  for (size_t t = 0; t < offload::kTiers; ++t) before.read[t] = traffic.read_bytes[t], before.written[t] = traffic.written_bytes[t];
  optim::LossScale loss_scale = o.loss_scale;
  for (i64 s = 0; s < o.steps; ++s) {
    parallel::StepSettings settings = step_settings(o, s);
    set_own_rates(o, model, settings.update);
    if (o.dtype == DType::f16) settings.loss_scale = loss_scale.scale;
    const parallel::StepResult step =
        rank.train_step([&] { return o.batches ? o.batches(s, rank_number) : random_batch(o, s, rank_number); }, settings);
    loss_scale = loss_scale.after(!step.skipped, o.loss_scale_interval);
    result.steps.push_back(step);
    result.losses.push_back(step.loss);
    result.norms.push_back(step.grad_norm);
    if (o.between) o.between(rank, s + 1);
  }
  result.head_timings = rank.head_timings();
  rank.settle();
  result.planned = rank.planned_bytes();
  for (size_t t = 0; t < offload::kTiers; ++t) {
    result.moved.read[t] = traffic.read_bytes[t] - before.read[t];
    result.moved.written[t] = traffic.written_bytes[t] - before.written[t];
  }
  result.moved.exchanged = rank.exchanged_bytes();
  result.moved.sent = rank.sent_bytes();
  if (o.at_end) o.at_end(rank);
  result.weights = read_values(model, result.plan, rank.state());
  result.m = read_values(model, result.plan, rank.state(), optim::StatePart::first);
  result.v = read_values(model, result.plan, rank.state(), optim::StatePart::second);
  result.third = read_values(model, result.plan, rank.state(), optim::StatePart::third);
  result.average = read_values(model, result.plan, rank.state(), optim::StatePart::average);
  result.seen = read_weights(result.plan, rank.state());
  result.peak_bytes = {device.peak_bytes(), host.peak_bytes()};
  return result;
}

// Merges the values of one rank into those of another.
void merge(std::vector<std::vector<double>>& into, const std::vector<std::vector<double>>& from) {
  for (size_t p = 0; p < into.size(); ++p) {
    into[p].resize(std::max(into[p].size(), from[p].size()));
    for (size_t i = 0; i < from[p].size(); ++i) {
      if (into[p][i] == 0) into[p][i] = from[p][i];
    }
  }
}

}  // namespace

RunResult train(const RunOptions& o) {
  const parallel::Mesh mesh{o.ranks, o.pipeline.ranks};
  if (mesh.size() == 1) return train_rank(o, 0, 0, {});
  auto ends = parallel::make_local_communicators(mesh.size(), {.timeout_s = kPatienceS});
  std::vector<RunResult> results(ends.size());
  std::vector<std::exception_ptr> errors(results.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < results.size(); ++r) {
    threads.emplace_back([&, r] {
      const std::unique_ptr<parallel::Communicator> end = std::move(ends[r]);
      try {
        const int world = static_cast<int>(r);
        results[r] = train_rank(o, mesh.data_rank(world), mesh.pipeline_rank(world), split_mesh(*end, mesh));
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& e : errors) {
    if (e) std::rethrow_exception(e);
  }
  RunResult all = std::move(results[0]);
  for (size_t r = 1; r < results.size(); ++r) {
    for (const auto part : {&RunResult::weights, &RunResult::m, &RunResult::v, &RunResult::third, &RunResult::average})
      merge(all.*part, results[r].*part);
    all.others.push_back(std::move(results[r]));
  }
  return all;
}

namespace {

void expect_as_planned(const RunResult& got) {
  EXPECT_EQ(got.moved.read, got.planned.read);
  EXPECT_EQ(got.moved.written, got.planned.written);
  EXPECT_EQ(got.moved.exchanged, got.planned.exchanged);
  EXPECT_EQ(got.moved.sent, got.planned.sent);
  EXPECT_EQ(got.peak_bytes[1], got.plan.total[1]);
}

}  // namespace

void expect_same_numbers(const RunResult& got, const RunResult& want) {
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.weights, want.weights);
  EXPECT_EQ(got.m, want.m);
  EXPECT_EQ(got.v, want.v);
  EXPECT_EQ(got.third, want.third);
  EXPECT_EQ(got.average, want.average);
  ASSERT_EQ(got.steps.size(), want.steps.size());
  for (size_t s = 0; s < want.steps.size(); ++s) {
    EXPECT_EQ(got.steps[s].skipped, want.steps[s].skipped) << "step " << s;
    EXPECT_EQ(got.steps[s].loss_scale, want.steps[s].loss_scale) << "step " << s;
    EXPECT_TRUE(got.steps[s].skipped || got.norms[s] == want.norms[s]) << "step " << s;
    for (const RunResult& other : got.others) EXPECT_EQ(other.steps[s].loss_scale, got.steps[s].loss_scale) << "step " << s;
  }
  expect_as_planned(got);
}

const std::vector<Way>& common_ways() {
  using parallel::OptimizerOverlap;
  constexpr parallel::Tier device = parallel::Tier::device, host = parallel::Tier::host, nvme = parallel::Tier::nvme;
  static const std::vector<Way> all = {
      {"host_backward", placed(host, host, host, OptimizerOverlap::backward)},
      {"nvme_backward", placed(nvme, nvme, nvme, OptimizerOverlap::backward)},
      {"nvme_forward", placed(nvme, nvme, nvme, OptimizerOverlap::forward)},
      {"state_on_nvme", placed(device, device, nvme, OptimizerOverlap::none)},
      {"weights_on_nvme", placed(nvme, host, device, OptimizerOverlap::forward)},
  };
  return all;
}

void expect_same_run(const RunResult& got, const RunResult& want) {
  EXPECT_EQ(got.losses, want.losses);
  EXPECT_EQ(got.norms, want.norms);
  EXPECT_EQ(got.weights, want.weights);
  EXPECT_EQ(got.m, want.m);
  EXPECT_EQ(got.v, want.v);
  EXPECT_EQ(got.third, want.third);
  EXPECT_EQ(got.average, want.average);
  expect_as_planned(got);
  for (const RunResult& other : got.others) {
    EXPECT_EQ(got.losses, other.losses);
    EXPECT_EQ(got.norms, other.norms);
    expect_as_planned(other);
    for (const auto& [tile, bytes] : other.seen) {
      const auto same = got.seen.find(tile);
      if (same != got.seen.end()) {
        EXPECT_EQ(same->second, bytes) << "tile " << tile.second << " of group " << tile.first;
      }
    }
  }
}

}  // namespace spillway::test
