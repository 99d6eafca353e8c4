#include "parallel/layout/layout.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace spillway::parallel {
namespace {

// Returns how the rule sees a parameter as matrices. Muon sees one matrix: the first dimension is its rows, and all others together are its
// columns.
optim::Matrices matrices_of(const nn::Parameter& p, optim::Rule rule) {
  return is_of_matrices(rule) ? optim::Matrices{1, p.shape[0], p.elems() / p.shape[0]} : optim::matrices_of(p.shape);
}

void add_segment(Group& group, const nn::Parameter& p, const LayoutOptions& options) {
  const i64 begin = round_up(group.elems, group.by_parameter ? kTileElems : kSegmentAlignElems);
  group.segments.push_back({p.id, begin, p.stored_elems(), options.decay_all || p.shape.rank() >= 2});
  if (group.by_parameter) {
    Segment& segment = group.segments.back();
    segment.matrices = matrices_of(p, options.rule);
    if (is_of_parameters(options.rule)) group.factors = std::max(group.factors, optim::factors_a_tile(segment.matrices, segment.elems));
  }
  group.elems = begin + p.stored_elems();
}

void cut_into_buckets(Layout& layout, Group& group, i64 max_elems) {
  group.elems = round_up(group.elems, kTileElems);
  if (group.frozen) return;
  const auto add = [&](i64 at, i64 elems) {
    const auto id = static_cast<u16>(layout.buckets.size());
    layout.buckets.push_back({id, group.id, at, ceil_div(elems, kTileElems)});
    group.buckets.push_back(id);
  };
  for (const Segment& s : group.by_parameter ? group.segments : std::vector<Segment>()) add(s.begin, s.elems);
  for (i64 at = 0; !group.by_parameter && at < group.elems; at += max_elems) add(at, std::min(max_elems, group.elems - at));
}

}  // namespace

bool Layout::trains(u16 block) const {
  return std::ranges::any_of(blocks[block], [&](const GroupUse& g) { return !groups[g.group].frozen; });
}

const Segment& Group::segment_of(const Bucket& bucket) const {
  return *std::ranges::find_if(segments, [&](const Segment& s) { return s.begin == bucket.begin; });
}

const Segment& Layout::segment(u32 parameter) const {
  const auto& [group, index] = parameter_segment.at(parameter);
  return groups[group].segments[index];
}

i64 Layout::elems() const {
  i64 n = 0;
  for (const Group& g : groups) n += g.elems;
  return n;
}

i64 Layout::trained_elems() const {
  i64 n = 0;
  for (const Bucket& b : buckets) n += b.elems();
  return n;
}

Layout make_layout(const nn::Sequential& model, const LayoutOptions& options) {
  require(options.max_bucket_elems > 0 && options.max_bucket_elems % kTileElems == 0,
          "[layout] expected a bucket size that is a positive multiple of the tile size");
  std::vector<std::vector<u16>> users(model.parameters.size());
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    for (const nn::ParameterUse& u : model.blocks[b]->parameters()) {
      require(u.use == users[u.parameter->id].size(),
              "[layout] expected the uses of a shared parameter to be numbered 0, 1, 2 … in the order of blocks");
      users[u.parameter->id].push_back(static_cast<u16>(b));
    }
  }
  Layout layout;
  layout.blocks.resize(model.blocks.size());
  layout.parameter_segment.resize(model.parameters.size());
  layout.first_trained_block = static_cast<u16>(model.first_trained_block());
  const auto new_group = [&](size_t block) -> Group& {
    Group& g = layout.groups.emplace_back();
    g.id = static_cast<u16>(layout.groups.size() - 1);
    g.owner_block = static_cast<u16>(block);
    return g;
  };
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    layout.backward_reads_weights.push_back(model.blocks[b]->backward_reads_parameters());
    layout.weight_gradients_read_weights.push_back(model.blocks[b]->weight_gradients_read_parameters());
    // Holds the groups for parameters that only this block uses, by kind: trained, frozen, statistics, matrices. Each
    // group is created when the first parameter of its kind is found; -1 means that it does not exist yet.
    std::array<int, 4> own{-1, -1, -1, -1};
    for (const nn::ParameterUse& u : model.blocks[b]->parameters()) {
      const nn::Parameter& p = *u.parameter;
      if (u.use > 0) {
        layout.blocks[b].push_back({layout.parameter_segment[p.id].first, u.use});
        continue;
      }
      const bool tied = users[p.id].size() > 1;
      const bool statistic = p.statistic && !p.frozen;
      const bool trained = !p.frozen && !statistic, all = trained && is_of_parameters(options.rule);
      const bool matrix = all ? p.shape.rank() >= 2 : trained && is_of_matrices(options.rule) && p.is_matrix();
      require(all || !matrix || !tied, "[layout] expected each matrix that Muon steps to be used by one block only");
      int& own_group = own[p.frozen ? 1 : statistic ? 2 : matrix ? 3 : 0];
      if (tied || own_group < 0) {
        Group& fresh = new_group(b);
        fresh.uses = users[p.id];
        fresh.frozen = p.frozen;
        fresh.statistics = statistic;
        fresh.by_parameter = all || matrix;
        layout.blocks[b].push_back({fresh.id, 0});
        if (!tied) own_group = fresh.id;
      }
      Group& group = tied ? layout.groups.back() : layout.groups[static_cast<size_t>(own_group)];
      layout.parameter_segment[p.id] = {group.id, group.segments.size()};
      add_segment(group, p, options);
    }
  }
  for (Group& g : layout.groups) cut_into_buckets(layout, g, options.max_bucket_elems);
  layout.rank_of.assign(layout.blocks.size(), 0);
  for (const Group& g : layout.groups) layout.model_tiles.push_back(g.elems / kTileElems);
  return layout;
}

Layout restricted(Layout layout, std::vector<u16> rank_of, int rank) {
  layout.rank_of = std::move(rank_of);
  layout.rank = static_cast<u16>(rank);
  for (u16 b = 0; b < layout.blocks.size(); ++b) {
    if (!layout.here(b)) layout.blocks[b].clear();
  }
  for (Group& g : layout.groups) {
    if (!layout.owns(g)) g.buckets.clear();
    if (std::any_of(g.uses.begin(), g.uses.end(), [&](u16 block) { return layout.here(block); })) continue;
    g.elems = 0;
    g.segments.clear();
  }
  return layout;
}

}  // namespace spillway::parallel
