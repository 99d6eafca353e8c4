// What a dead run left on the --nvme paths and this one cannot use is not lost: its files move aside, into a folder beside each of the
// store's, named by its id, and come back when a run opens them that fits. Death between two of these renames loses nothing: all files of a
// store have one id, and so one place aside. Used by NvmeStore alone.
#pragma once
#include <filesystem>
#include <vector>

#include "offload/nvme_store.h"

namespace spillway::offload {

/// Moves aside every store of which files lie at the description's paths, but for those without a commit that a restart could use. Returns
/// the folders they are in now. Errors: Error(io).
std::vector<std::filesystem::path> set_aside(const StoreDescription& description);

/// Stores set aside beside the first path, of this program's format.
std::vector<u64> stores_aside(const StoreDescription& description);

/// The same store where it was set aside.
StoreDescription aside(const StoreDescription& description, u64 store_id);

/// Moves its files back to the description's paths, where none may lie. Errors: Error(io).
void bring_back(const StoreDescription& description, u64 store_id);

}  // namespace spillway::offload
