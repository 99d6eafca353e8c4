#include "parallel/plan/dry_runs.h"

#include <algorithm>

#include "device/arena.h"
#include "device/foreign_memory.h"
#include "nn/key_value_cache.h"
#include "parallel/blocks/accumulator.h"
#include "parallel/blocks/block_runner.h"

namespace spillway::parallel {
namespace {

constexpr i64 kPassStep = 16;  // step between two consecutive lengths that pass_lengths() allows

// Runs a pass of `new_positions` positions at the end of a full key/value cache, on the meta device, and returns the bytes it takes.
WorkBytes dry_run_with_cache(const Request& r, const List& list, i64 new_positions) {
  Arena inputs, activations, kept;
  const auto stream = [&](Arena& arena) { return Stream{r.meta(), nullptr, &arena}; };
  nn::KeyValueCache cache(stream(kept), r.micro_batch_size, r.cache_positions, cache_lies(r.placement));
  cache.seek(r.cache_positions - new_positions);
  const Stream input_stream = stream(inputs), compute = stream(activations);
  std::vector<MicroBatch> batches;
  {
    const StreamScope scope(input_stream);
    batches.push_back(nn::empty_batch(*r.model, r.micro_batch_size, new_positions));
    batches.back().packed = true;
    batches.back().key_positions_BT = empty({r.micro_batch_size, r.cache_positions}, DType::int32, "positions of keys");
  }
  const StreamScope scope(compute);
  BlockRunner runner(*r.model, r.outputs);
  runner.begin(batches, nn::Mode::generate, {}, 1, 0, &cache);
  for (const Instruction& i : list) {
    if (i.op == Op::Forward) runner.forward(i);
  }
  return {activations.peak_bytes(), 0, round_up(kept.peak_bytes(), kPage)};
}

WorkBytes dry_runs_with_cache(const Request& r, const List& list) {
  WorkBytes most;
  for (const i64 length : pass_lengths(r.sequence_length)) {
    const WorkBytes one = dry_run_with_cache(r, list, length);
    most = {std::max(most.activations, one.activations), 0, one.cache};
  }
  return {round_up(most.activations, kPage), 0, most.cache};
}

// A model of tokens that generates text processes one sequence at a time.
i64 rows_of(const Request& r, nn::Mode mode) { return mode == nn::Mode::generate && r.model->reads_tokens() ? 1 : r.micro_batch_size; }
i64 micro_batches_of(const Request& r, nn::Mode mode) { return mode == nn::Mode::train ? r.scheduling.micro_batches : 1; }

// Returns a key that contains everything on which the peak memory of a dry run depends. Offsets in memory have no influence.
std::string what_is_computed(const Request& r, const List& list, nn::Mode mode) {
  std::string all;
  const auto add = [&](auto... values) { (all.append(reinterpret_cast<const char*>(&values), sizeof values), ...); };
  add(r.model, r.layout.rank, mode, r.device, rows_of(r, mode), micro_batches_of(r, mode), r.sequence_length, r.scheduling.format.gradient);
  for (const Instruction& i : list) {
    if (computes_block(i.op))
      add(i.op, i.block, i.micro_batch, i.first, i.recompute, i.keep_logits, i.in.bytes, i.out.bytes, i.spill.bytes);
  }
  return all;
}

// Runs the computing instructions of a list on the meta device and returns the peak bytes.
WorkBytes dry_run(const Request& r, const List& list, nn::Mode mode) {
  Arena inputs, activations, foreign;
  const Stream input_stream{r.meta(), nullptr, &inputs};
  const Stream stream{r.meta(), nullptr, &activations};
  const ForeignMemory counted(foreign);
  std::vector<MicroBatch> batches;
  {
    const StreamScope scope(input_stream);
    for (i64 k = 0; k < micro_batches_of(r, mode); ++k) batches.push_back(nn::empty_batch(*r.model, rows_of(r, mode), r.sequence_length));
  }
  const StreamScope scope(stream);
  BlockRunner runner(*r.model, r.outputs);
  Accumulator accumulator(r.layout, r.scheduling.format.gradient);
  runner.begin(batches, mode, {}, 1);
  for (const Instruction& i : list) {
    if (i.op == Op::Forward) runner.forward(i);
    if (!computes_block(i.op) || i.op == Op::Forward) continue;
    for (const GroupUse& use : r.layout.blocks[i.block]) {
      if (makes_weight_gradients(i.op) && !r.layout.groups[use.group].frozen) accumulator.place(use, nullptr, i.first);
    }
    runner.backward(i, accumulator);
    accumulator.finish();
  }
  return {activations.peak_bytes(), foreign.peak_bytes(), 0};
}

WorkBytes known_dry_run(const Request& r, const List& list, nn::Mode mode) {
  if (!r.dry_runs) return dry_run(r, list, mode);
  const auto [entry, fresh] = r.dry_runs->try_emplace(what_is_computed(r, list, mode));
  if (fresh) entry->second = dry_run(r, list, mode);
  return entry->second;
}

WorkBytes without_cache(const Request& r, const List& train, const List& forward) {
  WorkBytes peak;
  const auto add = [&](const List& list, nn::Mode mode) {
    const WorkBytes one = known_dry_run(r, list, mode);
    peak = {std::max(peak.activations, one.activations), std::max(peak.foreign, one.foreign), 0};
  };
  add(forward, r.training ? nn::Mode::evaluate : r.without_training);
  if (r.training) add(train, nn::Mode::train);
  // Includes generation, which runs to sample text and, for image models, to get the logits that count correct classifications.
  if ((r.training && r.model->inputs.empty()) || r.model->reads_images()) add(forward, nn::Mode::generate);
  return {round_up(peak.activations, kPage), round_up(peak.foreign, kPage), 0};
}

}  // namespace

std::vector<i64> pass_lengths(i64 longest) {
  std::vector<i64> lengths{1};
  for (i64 length = kPassStep; length < longest; length += kPassStep) lengths.push_back(length);
  if (longest > 1) lengths.push_back(longest);
  return lengths;
}

nn::KeyValueCache::Lies cache_lies(const Placement& placement) {
  return placement.cache == Tier::device ? nn::KeyValueCache::Lies::here : nn::KeyValueCache::Lies::elsewhere;
}

WorkBytes dry_runs(const Request& r, const List& train, const List& forward) {
  if (r.cache_positions == 0) return without_cache(r, train, forward);
  return dry_runs_with_cache(r, forward);
}

}  // namespace spillway::parallel
