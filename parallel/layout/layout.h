// A Layout states which parameters are stored together, and at which offset each lies.
//
// A block's parameters form one group with one flat layout (name -> offset). Parameters start at multiples of 64 elements, and the gaps
// between them hold zeros. A parameter that two blocks share (a tied head) forms a separate group, owned by the first block that uses it.
// Groups are cut at tile boundaries into buckets of bounded size, which are the unit of an optimizer update. The buckets of a group are
// contiguous in memory whenever the group is resident, so a matrix that is cut over several buckets is still one matrix.
//
// Some parameters of a block form a separate group: frozen parameters, which have weights only and no buckets; running statistics, whose
// optimizer state is at most a master copy; matrices, if the optimizer rule updates matrices as a whole (Muon); parameters of two or more
// dimensions, if the rule updates every parameter as a whole (Adafactor), because their state is smaller. Each parameter that is updated as
// a whole starts at a tile boundary and is one bucket.
//
// A layout is immutable and depends on the model and the optimizer rule only. Each pipeline rank has its own layout, in which blocks and
// groups have the same numbers as in the whole model. In it, blocks of other ranks use no groups, and groups that none of this rank's
// blocks uses are empty.
#pragma once
#include <vector>

#include "nn/module.h"
#include "optim/factors.h"
#include "optim/norm.h"
#include "optim/rule.h"

namespace spillway::parallel {

/// The number of elements in a tile. The tile is the unit of I/O and of partial norms, and shards begin and end at tile boundaries.
constexpr i64 kTileElems = optim::kTileElems;
/// The largest number of elements in a bucket: 64 MiB of fp32.
constexpr i64 kMaxBucketElems = 1024 * kTileElems;
/// Every parameter of a group starts at a multiple of this number of elements (256 bytes of fp32).
constexpr i64 kSegmentAlignElems = 64;

/// Describes one parameter inside its group.
struct Segment {
  u32 parameter = 0;
  i64 begin = 0, elems = 0;  // range of the parameter in the group's flat layout, in elements; for quantized parameters, in stored words
  bool decay = false;        // whether weight decay applies to this parameter
  // How the optimizer sees the parameter as matrices. Set only for parameters of two or more dimensions that the optimizer updates as a
  // whole.
  optim::Matrices matrices = {};
};

struct Bucket {
  u16 id = 0, group = 0;
  i64 begin = 0;  // first element of the bucket within the group, a multiple of kTileElems
  i64 tiles = 0;
  i64 elems() const { return tiles * kTileElems; }
};

struct Group {
  u16 id = 0, owner_block = 0;
  std::vector<Segment> segments;  // parameters in ascending order of their offsets
  std::vector<u16> buckets;
  i64 elems = 0;          // number of elements of the group with padding, a multiple of the tile size
  std::vector<u16> uses;  // the blocks that use the group, in ascending order
  bool frozen = false;
  bool statistics = false;
  bool by_parameter = false;  // whether the optimizer updates each parameter of the group as a whole
  i64 factors = 0;            // under Adafactor: number of row and column factors for which each tile of the group's state must have room
  /// Returns the parameter that this bucket of the group holds. Valid only for groups that the optimizer updates parameter by parameter.
  const Segment& segment_of(const Bucket& bucket) const;
  bool tied() const { return uses.size() > 1; }
  /// Returns false if only other pipeline ranks hold the group. The group is then empty in this rank's layout.
  bool held() const { return elems > 0; }
};

/// A parameter group that a block uses: the group's id, and the block's number among the blocks that use the group.
struct GroupUse {
  u16 group = 0;
  u8 use = 0;
};

struct Layout {
  std::vector<Bucket> buckets;
  std::vector<Group> groups;
  std::vector<std::vector<GroupUse>> blocks;              // the groups that each block uses
  std::vector<bool> backward_reads_weights;               // for each block, whether its backward pass reads the weights
  std::vector<bool> weight_gradients_read_weights;        // for each block, whether computing the weight gradients reads the weights
  std::vector<std::pair<u16, size_t>> parameter_segment;  // for each parameter: its group, and the index of its segment there
  u16 first_trained_block = 0;                            // the first block with trained parameters; blocks before it have no backward pass
  u16 rank = 0;                                           // the pipeline rank to which this layout belongs
  std::vector<u16> rank_of;                               // pipeline rank of each block
  // number of tiles of each group in the whole model, also of groups that this rank does not hold
  std::vector<i64> model_tiles;

  bool here(u16 block) const { return rank_of[block] == rank; }
  bool has_last_block() const { return rank_of.back() == rank; }
  /// Returns true if this rank updates and saves the group. A tied weight is owned by the rank of the first block that uses it; other ranks
  /// hold a copy of its values only.
  bool owns(const Group& group) const { return here(group.owner_block); }
  /// Returns true if the block's output goes to another pipeline rank.
  bool crosses(u16 block) const { return block + 1u < rank_of.size() && rank_of[block] != rank_of[block + 1u]; }
  /// Returns true if the block has parameters that are trained.
  bool trains(u16 block) const;
  const Segment& segment(u32 parameter) const;
  i64 elems() const;  // elements of all groups, including gaps and padding
  i64 trained_elems() const;
};

struct LayoutOptions {
  bool decay_all = false;  // whether weight decay applies to one-dimensional parameters too
  optim::Rule rule = optim::Rule::adamw;
  i64 max_bucket_elems = kMaxBucketElems;
};

/// Returns the layout of a whole model. Throws Error(bug) if a block names a shared parameter under a wrong use number (the position of the
/// block among those that use the parameter).
Layout make_layout(const nn::Sequential& model, const LayoutOptions& options = {});

/// Returns the part of a whole model's layout that pipeline rank `rank` holds. Block b lies on pipeline rank rank_of[b].
Layout restricted(Layout whole, std::vector<u16> rank_of, int rank);

/// Calls body(first, last, segment) for consecutive ranges [first, last) that together cover [begin, end) of the group's flat layout, in
/// ascending order. Each range lies in one segment, or in a gap between segments, for which `segment` is null.
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
