// Shared weights: the thread ranks of a process have one copy of weights and optimizer state. Each rank's
// module has leaf tensors of its own over the same storage and gradients of its own; after backward
// each rank updates its slice of the weights from all ranks' gradients in one fused pass.
//
// Two barriers a step, three with clipping. The first, after a rank's last backward: no write before every
// rank has read the weights for the last time. The second, after its slice: no forward before every slice is
// written. Between them, if gradients are clipped, one more: no write before every rank has the norm. What
// the ranks tell each other lies in slots that are written before a barrier and read after it.
#include <algorithm>
#include <atomic>

#include "troika/base/error.h"
#include "troika/parallel/gradient_sync.h"

namespace troika {
namespace {

constexpr size_t kCacheLine = 64;

/// What all ranks hold; it lives as long as the last of them.
struct Shared {
  struct alignas(kCacheLine) Slot {
    StepNumbers numbers;
    std::vector<const void*> gradients;  // by parameter; null if this rank has none
    bool finite = true;
  };
  explicit Shared(int ranks) : slots(static_cast<size_t>(ranks)) {}

  FlatLayout layout;
  std::vector<at::Tensor> weights;  // by version
  std::vector<at::Tensor> moments;
  at::Tensor mean;              // made by rank 0 when first wanted
  std::vector<double> squares;  // by block of the norm; each rank writes those of its slice
  std::vector<Slot> slots;
  // Raw writes bypass autograd's version counter, so we count slices ourselves.
  alignas(kCacheLine) std::atomic<int64_t> writes_begun = 0;
  alignas(kCacheLine) std::atomic<int64_t> writes_ended = 0;
};

class SharedWeights final : public GradientSync {
 public:
  SharedWeights(Communicator& communicator, std::shared_ptr<Shared> shared,
                const std::vector<NamedTensor>& parameters, const at::Tensor& weights)
      : GradientSync(parameters),
        communicator_(communicator),
        shared_(std::move(shared)),
        numbers_(static_cast<size_t>(communicator.size())) {
    buffers_.layout = shared_->layout;
    buffers_.weights = weights;
    for (const at::Tensor& moment : shared_->moments) buffers_.moments.push_back(moment.detach());
    written_ = slice_of_rank(buffers_.layout, communicator.size(), communicator.rank());
    for (const at::Tensor& moment : buffers_.moments) zero_range(moment, written_);
    mine().gradients.resize(parameters_.size());
    touched_.resize(parameters_.size());
    gradients_.resize(parameters_.size() * numbers_.size());
    barrier();
  }

  int64_t weight_version() const override {
    const int64_t begun = shared_->writes_begun.load(std::memory_order_acquire);
    const int64_t ended = shared_->writes_ended.load(std::memory_order_acquire);
    TROIKA_ASSERT(begun == ended, fmt::format("{} slices begun, {} written", begun, ended));
    return begun / communicator_.size();
  }

  void begin_step() override { drop_gradients(parameters_); }

  std::span<const StepNumbers> exchange(const StepNumbers& numbers) override {
    mine().numbers = numbers;
    for (size_t i = 0; i < parameters_.size(); ++i) mine().gradients[i] = gradient_of(parameters_[i]);
    barrier();
    const size_t ranks = numbers_.size();
    std::fill(touched_.begin(), touched_.end(), uint8_t{0});
    for (size_t r = 0; r < ranks; ++r) {
      numbers_[r] = shared_->slots[r].numbers;
      for (size_t i = 0; i < parameters_.size(); ++i) {
        const void* const gradient = shared_->slots[r].gradients[i];
        gradients_[i * ranks + r] = gradient;
        touched_[i] |= static_cast<uint8_t>(gradient != nullptr);
      }
    }
    return numbers_;
  }

  std::vector<double> squares(double weight) override {
    add_norm_blocks(buffers_.layout, buffers_.weights.scalar_type() == at::kDouble, weight, gradients_,
                    written_, shared_->squares);
    barrier();
    return squares_of_parameters(buffers_.layout, shared_->squares);
  }

  void update(const Update& update) override {
    if (update.anyone_wants_mean) prepare_mean();
    const at::Tensor mean = update.anyone_wants_mean ? shared_->mean : at::Tensor();
    shared_->writes_begun.fetch_add(1, std::memory_order_acq_rel);
    mine().finite = update_slice(buffers_, update, gradients_, mean, written_);
    shared_->writes_ended.fetch_add(1, std::memory_order_acq_rel);
  }

  bool finish_update(const Update& update) override {
    barrier();
    drop_gradients(parameters_);  // only now has every rank read them
    // The next step's writers wait for this rank, so the shared mean is still this step's.
    if (update.mean != nullptr) *update.mean = shared_->mean.clone();
    return std::all_of(shared_->slots.begin(), shared_->slots.end(),
                       [](const auto& slot) { return slot.finite; });
  }

  void discard() override {
    drop_gradients(parameters_);
    barrier();  // nobody overwrites a slot that another rank still reads
  }

  bool begin_load() override {
    barrier();
    return communicator_.rank() == 0;
  }

  void end_load() override { barrier(); }

 private:
  Shared::Slot& mine() { return shared_->slots[static_cast<size_t>(communicator_.rank())]; }

  void barrier() {
    if (communicator_.size() > 1) waiting([this] { communicator_.barrier(); });
  }

  void prepare_mean() {
    if (has_mean_) return;
    if (communicator_.rank() == 0) shared_->mean = zero_flat(buffers_.layout, buffers_.weights.scalar_type());
    barrier();
    has_mean_ = true;
  }

  Communicator& communicator_;
  std::shared_ptr<Shared> shared_;
  std::vector<StepNumbers> numbers_;    // of each rank
  std::vector<const void*> gradients_;  // as update_slice takes them
  bool has_mean_ = false;
};

/// One version: a model on flat weights that are made here.
FlatBuffers build_first(Communicator& communicator, const StageModel& stage, PlacedModel& placed) {
  placed.models.push_back(std::make_unique<Model>(
      stage.layers, stage.options.seed, stage.options.dtype,
      [&](const auto&) { communicator.say("building the model", 0); }, stage.border, stage.slices));
  FlatBuffers own = own_flat_buffers(*placed.models.back(), stage.options.dtype);
  placed.weights.push_back(own.weights);
  return own;
}

// Layer by layer, so that at most one layer is in memory twice.
void build_on_shared(Communicator& communicator, const StageModel& stage, const FlatLayout& layout,
                     const at::Tensor& weights, PlacedModel& placed) {
  size_t next = 0;
  const auto& entries = layout.entries;
  const auto point_at_shared = [&](const std::vector<NamedTensor>& parameters) {
    for (const NamedTensor& parameter : parameters) {
      if (next >= entries.size() || entries[next].name != parameter.name ||
          parameter.tensor.sizes() != at::IntArrayRef(entries[next].shape)) {
        fail_usage(
            "parameter \"{}\" of rank {} has no counterpart on rank 0: a layer's factory must build the same "
            "module on every rank",
            parameter.name, communicator.rank());
      }
      point_into(weights, entries[next], parameter.tensor);
      ++next;
    }
    communicator.say("building the model", 0);
  };
  placed.models.push_back(std::make_unique<Model>(stage.layers, stage.options.seed, stage.options.dtype,
                                                  point_at_shared, stage.border, stage.slices));
  placed.weights.push_back(weights.detach());
  if (next != entries.size()) {
    fail_usage(
        "rank {} has {} trainable parameters, rank 0 has {}: a layer's factory must build the same module on "
        "every rank",
        communicator.rank(), next, entries.size());
  }
}

}  // namespace

PlacedModel place_shared_weights(Communicator& communicator, const StageModel& stage) {
  std::shared_ptr<Shared> shared;
  PlacedModel placed;
  if (communicator.rank() == 0) {
    shared = std::make_shared<Shared>(communicator.size());
    for (int version = 0; version < stage.versions; ++version) {
      shared->layout = build_first(communicator, stage, placed).layout;
    }
    shared->weights = placed.weights;
    shared->squares.resize(static_cast<size_t>(count_norm_blocks(shared->layout)));
    for (size_t i = 0; i < moment_names(stage.options.optimizer).size(); ++i) {
      shared->moments.push_back(
          empty_flat(shared->layout, stage.options.dtype));  // each rank zeroes its slice
    }
  }
  if (communicator.size() > 1) {
    auto address = reinterpret_cast<int64_t>(&shared);
    communicator.broadcast({&address, 1, ElementType::int64}, 0);
    if (communicator.rank() != 0) shared = *reinterpret_cast<std::shared_ptr<Shared>*>(address);
    communicator.barrier();  // rank 0's handle stays where it is until all have theirs
  }
  if (communicator.rank() != 0) {
    for (const at::Tensor& weights : shared->weights) {
      build_on_shared(communicator, stage, shared->layout, weights, placed);
    }
  }
  placed.sync = std::make_unique<SharedWeights>(communicator, std::move(shared),
                                                placed.models[0]->parameters(), placed.weights[0]);
  return placed;
}

}  // namespace troika
