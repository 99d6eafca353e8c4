#include "trainer/settings/cards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>
#include <vector>

#include "base/edit_distance.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

constexpr std::string_view kVoltaSheet = "NVIDIA V100 data sheet", kTuringSheet = "NVIDIA T4 data sheet",
                           kAmpereConsumer = "NVIDIA Ampere GA102 GPU Architecture white paper",
                           kAda = "NVIDIA Ada GPU Architecture white paper",
                           kBlackwellConsumer = "NVIDIA RTX Blackwell GPU Architecture white paper", kA100 = "NVIDIA A100 data sheet",
                           kH100 = "NVIDIA H100 data sheet", kH200 = "NVIDIA H200 data sheet";

// Data sheets print the peaks of tensor cores with sparsity, which are twice these, and NVLink's rate of both ways together. GeForce cards
// sum products of fp16 in fp32 at half the rate of sums in fp16; the rate here is the one with fp32 sums, as in training.
// The page of the RTX 3060 gives 101 TFLOP/s with sparsity and sums of fp16, and the rate here is a quarter of that.
constexpr Card kCards[] = {
    // name, GiB, bf16, fp16, tf32, fp32 (TFLOP/s), whether it has fp8, memory GB/s, PCIe, lanes, NVLink GB/s each way, GPUs that it joins,
    // source
    {"RTX3060", 12, 25.3, 25.3, 12.7, 12.7, false, 360, 4, 16, 0, 0, "NVIDIA GeForce RTX 3060 product page"},
    {"RTX3070", 8, 40.6, 40.6, 20.3, 20.3, false, 448, 4, 16, 0, 0, kAmpereConsumer},
    {"RTX3080", 10, 59.5, 59.5, 29.8, 29.8, false, 760, 4, 16, 0, 0, kAmpereConsumer},
    {"RTX3090", 24, 71, 71, 35.6, 35.6, false, 936, 4, 16, 56.25, 2, kAmpereConsumer},
    {"RTX4070Ti", 12, 80.2, 80.2, 40.1, 40.1, true, 504, 4, 16, 0, 0, kAda},
    {"RTX4080", 16, 97.5, 97.5, 48.7, 48.7, true, 717, 4, 16, 0, 0, kAda},
    {"RTX4090", 24, 165.2, 165.2, 82.6, 82.6, true, 1008, 4, 16, 0, 0, kAda},
    {"RTX5080", 16, 112.6, 112.6, 56.3, 56.3, true, 960, 5, 16, 0, 0, kBlackwellConsumer},
    {"RTX5090", 32, 209.5, 209.5, 104.8, 104.8, true, 1792, 5, 16, 0, 0, kBlackwellConsumer},
    {"A6000", 48, 154.8, 154.8, 77.4, 38.7, false, 768, 4, 16, 56.25, 2, kAmpereConsumer},
    {"RTX6000-Ada", 48, 364.2, 364.2, 182.1, 91.1, true, 960, 4, 16, 0, 0, "NVIDIA RTX 6000 Ada Generation data sheet"},
    {"RTX-PRO-6000", 95.6, 503.8, 503.8, 251.9, 125, true, 1792, 5, 16, 0, 0, "NVIDIA RTX PRO 6000 Blackwell data sheet"},
    {"A10", 22.5, 125, 125, 62.5, 31.2, false, 600, 4, 16, 0, 0, "NVIDIA A10 data sheet"},
    {"A30", 24, 165, 165, 82, 10.3, false, 933, 4, 16, 100, 2, "NVIDIA A30 data sheet"},
    {"A40", 45, 149.7, 149.7, 74.8, 37.4, false, 696, 4, 16, 56.25, 2, "NVIDIA A40 data sheet"},
    {"L4", 22.5, 121, 121, 60, 30.3, true, 300, 4, 16, 0, 0, "NVIDIA L4 data sheet"},
    {"L40", 45, 181.05, 181.05, 90.5, 90.5, true, 864, 4, 16, 0, 0, "NVIDIA L40 data sheet"},
    {"L40S", 45, 362.05, 362.05, 183, 91.6, true, 864, 4, 16, 0, 0, "NVIDIA L40S data sheet"},
    {"T4", 15, 0, 65, 0, 8.1, false, 320, 3, 16, 0, 0, kTuringSheet},
    {"V100", 16, 0, 125, 0, 15.7, false, 900, 3, 16, 150, 8, kVoltaSheet},
    {"V100", 32, 0, 125, 0, 15.7, false, 900, 3, 16, 150, 8, kVoltaSheet},
    {"V100-PCIe", 16, 0, 112, 0, 14, false, 900, 3, 16, 0, 0, kVoltaSheet},
    {"V100-PCIe", 32, 0, 112, 0, 14, false, 900, 3, 16, 0, 0, kVoltaSheet},
    {"A100", 40, 312, 312, 156, 19.5, false, 1555, 4, 16, 300, 8, kA100},
    {"A100", 80, 312, 312, 156, 19.5, false, 2039, 4, 16, 300, 8, kA100},
    {"A100-PCIe", 40, 312, 312, 156, 19.5, false, 1555, 4, 16, 300, 2, kA100},
    {"A100-PCIe", 80, 312, 312, 156, 19.5, false, 1935, 4, 16, 300, 2, kA100},
    {"H100", 79.6, 989, 989, 494, 67, true, 3350, 5, 16, 450, 8, kH100},
    {"H100-PCIe", 79.6, 756, 756, 378, 51, true, 2000, 5, 16, 300, 2, kH100},
    {"H100-NVL", 93.5, 835, 835, 417, 60, true, 3900, 5, 16, 300, 2, kH100},
    {"H200", 140.4, 989, 989, 494, 67, true, 4800, 5, 16, 450, 8, kH200},
    {"B200", 178.3, 2250, 2250, 1100, 75, true, 7700, 5, 16, 900, 8, "NVIDIA HGX B200 data sheet"},
};

// Returns the name in the form in which names are compared: small letters and digits, without the words that users add or leave out.
std::string plain(std::string_view name) {
  std::string text;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c))) text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  for (const std::string_view word : {"nvidia", "geforce", "tesla", "rtx"}) {
    if (text.starts_with(word)) text.erase(0, word.size());
  }
  for (const std::string_view word : {"blackwell", "sxm2", "sxm4", "sxm5", "sxm"}) {
    if (text.ends_with(word)) text.erase(text.size() - word.size());
  }
  return text;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Card& card : kCards) {
    if (all.empty() || all.back() != card.name) all.emplace_back(card.name);
  }
  return all;
}

}  // namespace

bool Card::on_tensor_cores(DType weight, bool tf32_products) const {
  if (weight == DType::bf16) return bf16 > 0;
  if (weight == DType::f16) return fp16 > 0;
  return weight == DType::f32 && tf32_products && tf32 > 0;
}

double Card::flops(DType weight, bool tf32_products) const {
  const double peak = !on_tensor_cores(weight, tf32_products) ? fp32 : weight == DType::bf16 ? bf16 : weight == DType::f16 ? fp16 : tf32;
  return peak * 1e12;
}

double Card::link_bytes_per_s() const { return std::ldexp(1e9, pcie - 3) * lanes; }  // a lane of PCIe 3 carries 1 GB/s, of PCIe 4 2 GB/s

std::span<const Card> all_cards() { return kCards; }

const Card* find_card(std::string_view name, std::optional<i64> memory_bytes, const std::string& what) {
  std::vector<const Card*> found;
  for (const Card& card : kCards) {
    if (plain(card.name) == plain(name)) found.push_back(&card);
  }
  if (found.empty()) return nullptr;
  if (found.size() > 1 && !memory_bytes) {
    std::vector<std::string> sizes;
    for (const Card* card : found) sizes.push_back(fmt::format("{}-{}GiB", card->name, card->memory_gib));
    refuse(fmt::format("[{}] expected the memory of the {}, which is made with different sizes: {}", what, found[0]->name,
                       fmt::join(sizes, " or ")));
  }
  const auto off = [&](const Card* card) {
    return memory_bytes ? std::abs(card->memory_gib * static_cast<double>(kGiB) - static_cast<double>(*memory_bytes)) : 0;
  };
  return *std::ranges::min_element(found, {}, off);
}

std::string other_cards(std::string_view name) {
  const std::vector<std::string> all = names();
  const std::string wanted = plain(name);
  const auto shared_start = [&](const std::string& one) { return std::ranges::mismatch(one, wanted).in1 - one.begin(); };
  // Fewest edits first. Among equally many, the name that begins as the wanted one does: H100 is nearer to H10 than A10 is.
  const auto edits = [&](const std::string& card) {
    const std::string one = plain(card);
    return std::pair(edit_distance(one, wanted), -shared_start(one));
  };
  const std::string& close = *std::ranges::min_element(all, {}, edits);
  const bool is_near = 2 * edits(close).first <= static_cast<int>(wanted.size());
  return fmt::format("{} The table has {}; for another NVIDIA GPU take the one most like it, with its own memory, as in RTX3090-16GiB",
                     is_near ? fmt::format(": did you mean {}?", close) : ".", fmt::join(all, ", "));
}

}  // namespace spillway::trainer
