// Where a rank stands: all ranks are a rectangle of data-parallel ranks by pipeline ranks. Neighbours in number are data-parallel ranks of
// the same stages, who have most to tell each other: world rank = pipeline rank * data + data rank. Values; split_mesh is called by all
// ranks together.
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

/// A rank's ends of its two groups: those who hold the same stages, and those who pass each other activations.
struct MeshEnds {
  std::unique_ptr<Communicator> data_ranks, pipeline_ranks;
};

/// Throws Error(usage) if the world is not of the mesh's size.
MeshEnds split_mesh(Communicator& world, const Mesh& mesh);

}  // namespace spillway::parallel
