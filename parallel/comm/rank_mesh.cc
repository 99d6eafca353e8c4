#include "parallel/comm/rank_mesh.h"

#include <fmt/format.h>

#include "base/error.h"

namespace spillway::parallel {

MeshEnds split_mesh(Communicator& world, const Mesh& mesh) {
  if (mesh.data < 1 || mesh.pipeline < 1 || world.size() != mesh.size()) {
    throw Error(ErrorCode::usage,
                fmt::format("[mesh] expected {} data-parallel by {} pipeline ranks to be all {} ranks: give as many ranks "
                            "as their product",
                            mesh.data, mesh.pipeline, world.size()));
  }
  auto data_ranks = world.split(mesh.pipeline_rank(world.rank()));
  return {std::move(data_ranks), world.split(mesh.data_rank(world.rank()))};
}

}  // namespace spillway::parallel
