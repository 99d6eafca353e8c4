#include "base/error.h"
#include "device/launch_cuda.h"
#include "optim/average_tile.h"
#include "optim/bf16.h"

namespace spillway::optim {
namespace {

constexpr int kThreads = 256;

enum class Weight { own_master, fp32_master, split_master };

struct AverageLaunch {
  AverageOperands first;
  i64 weight_tile_bytes, state_tile_bytes, average_begin;
  Weight weight;
  double share;
};

template <class T>
__device__ T at(const std::byte* column, i64 i) {
  return reinterpret_cast<const T*>(column)[i];
}

// A kernel in which each thread updates one element of the average.
template <class T>
__global__ void __launch_bounds__(kThreads) average_tiles(AverageLaunch l) {
  const i64 element = i64{blockIdx.x} * kThreads + threadIdx.x, tile = element / kTileElems, i = element % kTileElems;
  const std::byte* weight = l.first.weight + tile * l.weight_tile_bytes;
  const std::byte* state = l.first.state + tile * l.state_tile_bytes;
  T master;
  if (l.weight == Weight::own_master) {
    master = at<T>(weight, i);
  } else if (l.weight == Weight::fp32_master) {
    master = at<float>(state, i);
  } else {
    master = join_master(at<u16>(weight, i), at<u16>(state, i));
  }
  const T a = at<T>(l.first.old_state + tile * l.state_tile_bytes + l.average_begin, i);
  const T step = static_cast<T>(l.share) * (master - a);
  reinterpret_cast<T*>(l.first.new_state + tile * l.state_tile_bytes + l.average_begin)[i] = a + step;
}

}  // namespace

void average_tiles_on_gpu(const StateFormat& format, const AverageOperands& first, i64 tiles, double decay) {
  require(format.average, "[average] expected a state format with an average of the weights");
  const Weight weight = !is_half(format.weight)          ? Weight::own_master
                        : format.master == Master::split ? Weight::split_master
                                                         : Weight::fp32_master;
  const AverageLaunch l{first, format.weight_tile_bytes(), format.state_tile_bytes(), format.average_begin_bytes(), weight, 1 - decay};
  launch("average of weights", format.weight == DType::f64 ? average_tiles<double> : average_tiles<float>,
         dim3(static_cast<unsigned>(tiles * (kTileElems / kThreads))), dim3(kThreads), l);
}

}  // namespace spillway::optim
