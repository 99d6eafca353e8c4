// The mesh of ranks has two dimensions: data-parallel ranks and pipeline ranks. World rank = pipeline rank * data +
// data rank, where `data` is the number of data-parallel ranks. So neighbouring ranks are data-parallel ranks of the
// same stages; these communicate most. Plain values; split_mesh is a collective of all ranks.
#pragma once
#include <memory>

#include "parallel/comm/communicator.h"

namespace spillway::parallel {

struct Mesh {
  int data = 1, pipeline = 1;

  int size() const { return data * pipeline; }
  int data_rank(int world) const { return world % data; }
  int pipeline_rank(int world) const { return world / data; }
  int world_rank(int data_rank, int pipeline_rank) const { return pipeline_rank * data + data_rank; }
  bool operator==(const Mesh&) const = default;
};

/// Holds a rank's endpoints in its two groups. The ranks in `data_ranks` hold the same pipeline stages; those in `pipeline_ranks` form
/// one pipeline.
struct MeshEnds {
  std::unique_ptr<Communicator> data_ranks, pipeline_ranks;
};

/// Splits the world into the groups of the mesh. Throws Error(usage) if the world does not have the mesh's size.
MeshEnds split_mesh(Communicator& world, const Mesh& mesh);

}  // namespace spillway::parallel
