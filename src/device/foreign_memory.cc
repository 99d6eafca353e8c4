#include "device/foreign_memory.h"

#include <utility>

namespace spillway {
namespace {

thread_local Allocator* counting = nullptr;

}  // namespace

ForeignMemory::ForeignMemory(Allocator& memory) : outer_(std::exchange(counting, &memory)) {}

ForeignMemory::~ForeignMemory() { counting = outer_; }

Allocator* ForeignMemory::current() { return counting; }

}  // namespace spillway
