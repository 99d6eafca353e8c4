#include "parallel/comm/rank_mesh.h"

#include <fmt/format.h>

#include "base/error.h"

namespace spillway::parallel {

MeshEnds split_mesh(Communicator& world, const Mesh& mesh) {
  if (mesh.data < 1 || mesh.pipeline < 1 || world.size() != mesh.size()) {
    throw Error(ErrorCode::usage, fmt::format("[mesh] expected {} data-parallel ranks times {} pipeline ranks to equal the number of "
                                              "ranks, got {} ranks: start as many ranks as this product",
                                              mesh.data, mesh.pipeline, world.size()));
  }
  auto data_ranks = world.split(mesh.pipeline_rank(world.rank()));
  return {std::move(data_ranks), world.split(mesh.data_rank(world.rank()))};
}

}  // namespace spillway::parallel
