// The table of GPUs for which `plan --cluster` plans: what their vendor publishes about them. Nothing in it was measured here. Cards are
// constants; the functions are pure.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace spillway::trainer {

/// Card is a GPU as its vendor describes it. Peaks count dense products, not sparse ones, whose sums are kept in fp32.
struct Card {
  std::string_view name;
  double memory_gib = 0;  // what the driver gives to programs; with ECC it is a little less than the data sheet says
  /// TFLOP/s of matrix products of bf16, fp16 and tf32 on tensor cores, 0 if the tensor cores do not have the type, and of fp32 without
  /// tensor cores.
  double bf16 = 0, fp16 = 0, tf32 = 0, fp32 = 0;
  bool fp8 = false;  // whether the tensor cores multiply fp8; they do so at twice the rate of bf16
  double memory_gb_per_s = 0;
  int pcie = 4, lanes = 16;    // generation and lanes of its PCIe link to the host
  double nvlink_gb_per_s = 0;  // each way, all its NVLinks together; 0: the card has none
  int nvlink_gpus = 0;         // number of GPUs of a node that NVLink can join: 8 in SXM servers, 2 with a bridge
  std::string_view source;     // the vendor's document that has the figures

  /// Returns the peak of products of weights of type `weight`, in FLOP/s. A type that the tensor cores do not have runs at the fp32 rate.
  double flops(DType weight, bool tf32_products) const;
  /// Returns whether the tensor cores have the type `weight`, or, for fp32, whether tf32 may be used and they have that.
  bool on_tensor_cores(DType weight, bool tf32_products) const;
  /// Returns the bytes per second that the PCIe link carries each way.
  double link_bytes_per_s() const;
};

/// Returns all cards of the table, those of one family together.
std::span<const Card> all_cards();

/// Returns the card with this name, or null. Case, spaces, dashes and the words NVIDIA, GeForce, Tesla, RTX, SXM and Blackwell do not
/// matter: "rtx 4090" is RTX4090. Some names have cards of several memory sizes. `memory_bytes` chooses the nearest of them; without it
/// such a name throws Error(usage), which lists the sizes.
const Card* find_card(std::string_view name, std::optional<i64> memory_bytes, const std::string& what);

/// Returns ": did you mean X? The table has …", the end of a message about a name that find_card() does not know.
std::string other_cards(std::string_view name);

}  // namespace spillway::trainer
