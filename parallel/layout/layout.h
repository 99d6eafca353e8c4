// Where each parameter lies when it rests or moves. A block's parameters form one group with one flat layout (name -> offset, starts at 64
// elements, gaps zero); a parameter that two blocks share (a tied head) is a group of its own, owned by the first block that uses it. A
// group is cut at tile limits into buckets of bounded size: the unit of stepping. What a block does not train (frozen parameters) forms a
// group of its own, of weights alone, without buckets; so do its running statistics, stepped by a rule of their own that keeps nothing of
// them but a master, and, under a rule that steps matrices as a whole, its matrices: each from a tile of its own on, and a bucket. Under
// one that steps every parameter as a whole all are; those of two and more dimensions, whose state is smaller, are a group beside the rest.
// Buckets of a group are neighbours in memory whenever the group is resident, so a matrix cut over several buckets is still one matrix.
// Immutable; a function of the model and the rule alone. Of several pipeline ranks each has a layout with the numbers of the whole model's:
// blocks of other ranks use no groups, and groups that no block of its own uses are empty.
#pragma once
#include <vector>

#include "nn/module.h"
#include "optim/factors.h"
#include "optim/norm.h"
#include "optim/rule.h"

namespace spillway::parallel {

/// Elements of a tile: the unit of I/O, of the norm and of shard limits.
constexpr i64 kTileElems = optim::kTileElems;
/// Largest bucket; 64 MiB of fp32.
constexpr i64 kMaxBucketElems = 1024 * kTileElems;
/// Every parameter starts at a multiple of this many elements (256 bytes of fp32).
constexpr i64 kSegmentAlignElems = 64;

/// One parameter inside its group.
struct Segment {
  u32 parameter = 0;
  i64 begin = 0, elems = 0;       // in the group's flat layout; of what is not plain, words of its units
  bool decay = false;             // weight decay applies
  optim::Matrices matrices = {};  // of what is stepped as a whole and has two dimensions or more
};

struct Bucket {
  u16 id = 0, group = 0;
  i64 begin = 0;  // first element within the group, a multiple of kTileElems
  i64 tiles = 0;
  i64 elems() const { return tiles * kTileElems; }
};

struct Group {
  u16 id = 0, owner_block = 0;
  std::vector<Segment> segments;  // ascending
  std::vector<u16> buckets;
  i64 elems = 0;          // whole tiles
  std::vector<u16> uses;  // the blocks that use it, in order; use u is uses[u]
  bool frozen = false;
  bool statistics = false;
  bool by_parameter = false;  // each is stepped as a whole
  i64 factors = 0;            // that a tile of its state holds at least, under Adafactor
  /// Of one of its buckets, when stepped by parameter.
  const Segment& segment_of(const Bucket& bucket) const;
  bool tied() const { return uses.size() > 1; }
  /// Empty ones are held by other pipeline ranks.
  bool held() const { return elems > 0; }
};

/// A group as one block uses it.
struct GroupUse {
  u16 group = 0;
  u8 use = 0;
};

struct Layout {
  std::vector<Bucket> buckets;
  std::vector<Group> groups;
  std::vector<std::vector<GroupUse>> blocks;              // by block
  std::vector<bool> backward_reads_weights;               // by block, as its module says
  std::vector<bool> weight_gradients_read_weights;        // likewise, of a BackwardWeight
  std::vector<std::pair<u16, size_t>> parameter_segment;  // by parameter: group, index of its segment
  u16 first_trained_block = 0;                            // blocks before it have no backward
  u16 rank = 0;                                           // the pipeline rank whose layout it is
  std::vector<u16> rank_of;                               // by block: its pipeline rank
  std::vector<i64> model_tiles;                           // by group, held here or not

  bool here(u16 block) const { return rank_of[block] == rank; }
  bool has_last_block() const { return rank_of.back() == rank; }
  /// Stepped and saved here. A tied weight is so by the rank of the first block that uses it; others have its values alone.
  bool owns(const Group& group) const { return here(group.owner_block); }
  /// The block's output goes to another pipeline rank.
  bool crosses(u16 block) const { return block + 1u < rank_of.size() && rank_of[block] != rank_of[block + 1u]; }
  /// It has parameters that are trained.
  bool trains(u16 block) const;
  const Segment& segment(u32 parameter) const;
  i64 elems() const;  // over all groups, gaps and padding counted
  i64 trained_elems() const;
};

struct LayoutOptions {
  bool decay_all = false;  // decay one-dimensional parameters too
  optim::Rule rule = optim::Rule::adamw;
  i64 max_bucket_elems = kMaxBucketElems;
};

/// Throws Error(bug) when a block uses a parameter under a wrong use number.
Layout make_layout(const nn::Sequential& model, const LayoutOptions& options = {});

/// What pipeline rank `rank` holds of a whole model's layout, when block b is rank_of[b]'s.
Layout restricted(Layout whole, std::vector<u16> rank_of, int rank);

/// Calls body(begin, end, segment or nullptr for a gap) over [begin, end) of the group's flat layout, cut at segment limits, ascending.
template <class Body>
void for_segments(const Group& group, i64 begin, i64 end, Body&& body);

}  // namespace spillway::parallel

template <class Body>
void spillway::parallel::for_segments(const Group& group, i64 begin, i64 end, Body&& body) {
  i64 at = begin;
  for (const Segment& s : group.segments) {
    if (s.begin + s.elems <= at) continue;
    if (s.begin >= end) break;
    if (at < s.begin) body(at, s.begin, static_cast<const Segment*>(nullptr));
    at = at < s.begin ? s.begin : at;
    const i64 stop = s.begin + s.elems < end ? s.begin + s.elems : end;
    body(at, stop, &s);
    at = stop;
  }
  if (at < end) body(at, end, static_cast<const Segment*>(nullptr));
}
