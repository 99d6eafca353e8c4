#include "device/device.h"

namespace spillway {

std::string to_string(Device device) {
  switch (device.kind) {
    case Device::Kind::cpu:
      return "cpu";
    case Device::Kind::cuda:
      return "cuda:" + std::to_string(device.index);
    case Device::Kind::meta:
      return "meta";
  }
  return "?";
}

}  // namespace spillway
