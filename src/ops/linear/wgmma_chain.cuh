// Outliers in the kernels of wgmma.cuh by the tensor cores: the listed columns are steps of
// math/tensor_core.h, sixteen at a time, onto sums that have their rows' scales. Codes and values
// are both numbers of the outliers' type. The weight's codes are picked by warps of their own.
#pragma once

#include "cuda/mma.cuh"
#include "cuda/wgmma.cuh"
#include "ops/linear/wgmma_listed.cuh"

namespace planq::linear::wgmma {

inline constexpr int kStepPlaces = 16, kSteps = kPlaces / kStepPlaces;

// Orders of codes, which are +0 behind the last place: up to number `places`.
//
// Columns of 64 places, as a factor of a warpgroup's tensor cores lies, with its swizzle.
struct FactorOrder {
  static constexpr bool kOutliersType = true;
  static __device__ __forceinline__ int slot(int place, int column) {
    return column * kPlaces + (place ^ column % 8 * 8);
  }
  static __device__ __forceinline__ int places(int count) { return count > 0 ? kPlaces : 0; }
};
// Places of 128 columns, of which eight matrices' rows of eight columns are in no bank twice.
struct MatrixOrder {
  static constexpr bool kOutliersType = true;
  static __device__ __forceinline__ int slot(int place, int column) {
    return place * kListedColumns + (column ^ place % 8 * 8);
  }
  static __device__ __forceinline__ int places(int count) {
    return (min(count, kPlaces) + kStepPlaces - 1) / kStepPlaces * kStepPlaces;
  }
};

// Picks codes of 128 columns at the list's first places, one of kWarps warps that share the places
// between them: a lane has four columns of a place.
template <class Order, int kWarps>
class PlacePicker {
 public:
  __device__ __forceinline__ PlacePicker(const Listed& listed, const ListedColumns& columns,
                                         int warp)
      : dtype_(listed.dtype), warp_(warp) {
    const int places = Order::places(columns.count());
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      column_[half] = columns.column(half);
      const int place = lane() + half * cuda::kWarp;
      missing_[half] = __ballot_sync(cuda::kAllLanes, place < places && column_[half] < 0);
    }
  }

  // Where a place names no column, and behind the last, codes are 0.
  __device__ __forceinline__ void clear(std::uint16_t* codes) const {
    const int none[kColumns] = {};
    each_own(missing_, [&](int, int place) { put(codes, place, none); });
  }
  // From box number `box` along k, whose 128 rows are those of the columns. By whole warps.
  __device__ __forceinline__ void pick(int box, const std::uint8_t* rows,
                                       std::uint16_t* codes) const {
    unsigned found[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      found[half] = __ballot_sync(cuda::kAllLanes, column_[half] >> kBoxBits == box);
    if ((found[0] | found[1]) == 0) return;
    // A row's bytes are where the copy's swizzle has put them, which is by 16.
    rows += lane() * cuda::kBoxBytes;
    each_own(found, [&](int half, int place) {
      const int byte =
          __shfl_sync(cuda::kAllLanes, column_[half], place % cuda::kWarp) % cuda::kBoxBytes;
      int each[kColumns];
#pragma unroll
      for (int i = 0; i < kColumns; ++i)
        each[i] = static_cast<std::int8_t>(
            rows[i * cuda::kWarp * cuda::kBoxBytes + (byte ^ lane() % 8 * 16)]);
      put(codes, place, each);
    });
    // Reads of the box come before the warp gives it back.
    __syncwarp();
  }

 private:
  static constexpr int kBoxBits = 7, kColumns = kListedColumns / cuda::kWarp;
  static_assert(1 << kBoxBits == cuda::kBoxBytes);

  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % cuda::kWarp;
  }
  // Calls body(half, place) for this warp's share of the places in two masks.
  template <class Body>
  __device__ __forceinline__ void each_own(const unsigned (&masks)[2], const Body& body) const {
    int turn = warp_;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll 1
      for (unsigned left = masks[half]; left; left &= left - 1) {
        if (turn == 0) body(half, half * cuda::kWarp + __ffs(left) - 1);
        turn = turn == 0 ? kWarps - 1 : turn - 1;
      }
  }
  __device__ __forceinline__ void put(std::uint16_t* codes, int place,
                                      const int (&each)[kColumns]) const {
#pragma unroll
    for (int i = 0; i < kColumns; ++i)
      codes[Order::slot(place, lane() + i * cuda::kWarp)] = code_bits<Order>(each[i], dtype_);
  }

  int column_[2];
  unsigned missing_[2];
  DType dtype_;
  int warp_;
};

// Asks for the values of a row of the batch at the list's first places.
__device__ __forceinline__ void touch_values(const Listed& listed, int count,
                                             const Outputs& outputs, int batch, std::int64_t m) {
  constexpr int kSectorBytes = 32;
  const auto step = static_cast<int>(kSectorBytes / detail::element_bytes(listed.dtype));
  if (m >= outputs.rows) return;
#pragma unroll 1
  for (int place = 0; place < min(count, kPlaces); place += step)
    touch_element(listed.values, batch * listed.batch + m * listed.row + place, listed.dtype);
}

// Calls body(an element) of the outliers' type.
template <class Body>
__device__ __forceinline__ void with_values(DType dtype, const Body& body) {
  if (dtype == DType::Float16)
    body(math::Half{});
  else
    body(math::Bfloat16{});
}

// --- Tiles of the tensor cores ------------------------------------------------------------------

// Values of a row at two neighbouring places, 0 beyond the last.
template <class T>
__device__ __forceinline__ std::uint32_t two_values(const T* row, int place, int count,
                                                    bool vectors) {
  std::uint32_t word = 0;
  if (vectors) {
    if (place < count) word = *reinterpret_cast<const std::uint32_t*>(row + place);
  } else {
    if (place < count) word = row[place].bits;
    if (place + 1 < count) word |= std::uint32_t{row[place + 1].bits} << 16;
  }
  return place + 1 == count ? word & 0xFFFF : word;
}

// The rows of which a thread has sums, as a factor of steps: of kSteps of them and kTiles times 64
// rows.
template <class T, int kTiles>
struct StepValues {
  std::uint32_t words[kSteps][kTiles][4];

  __device__ __forceinline__ void read(const T* const (&rows)[2 * kTiles], int first, int count,
                                       bool vectors) {
    const int own = first + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
    for (int step = 0; step < kSteps; ++step)
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          words[step][tile][i] = two_values(rows[2 * tile + i % 2],
                                            own + step * kStepPlaces + i / 2 * 8, count, vectors);
  }
};

// Steps over kPlaces, at least one of which is the list's, onto sums that are float32 by now. A
// step of zeros leaves what another step has made as it is.
template <class T, int kTiles>
__device__ __forceinline__ void add_steps(int (&sums)[kTiles][kListedColumns / 2],
                                          const StepValues<T, kTiles>& values,
                                          const std::uint16_t* codes) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
  const std::uint64_t factor =
      cuda::factor_of(static_cast<std::uint32_t>(cuda::uniform(cuda::shared_address(codes))));
  cuda::begin_products();
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      cuda::add_held_step<T>(sums[tile], values.words[step][tile],
                             cuda::advanced(factor, step * cuda::kProductDepth));
  cuda::commit_products();
  cuda::wait_for_products<0>();
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) cuda::pin(sums[tile]);
}

// Names of barriers of a tile's four warps: their own, and those with the warps that pick for them,
// when the codes' shared memory is free and when it is full.
struct TileBarriers {
  int own, free, full;
};
inline constexpr int kPickWarps = 3;
inline constexpr int kPickThreads = (4 + kPickWarps) * cuda::kWarp;

// The outliers of the tiles that four warps have after each other. `codes`: shared memory of these
// warps, free while they multiply, aligned to 1024 bytes.
class TileSteps {
 public:
  __device__ __forceinline__ TileSteps(const Listed& listed, std::uint16_t* codes,
                                       const TileBarriers& barriers)
      : listed_(listed), codes_(codes), barriers_(barriers), count_(listed.listed()) {}

  // Before a tile, once the one before it is stored. m: of a row whose values will be read.
  __device__ __forceinline__ void begin(const Outputs& outputs, int batch, std::int64_t m) const {
    touch_values(listed_, count_, outputs, batch, m);
    cuda::named_barrier_arrive(barriers_.free, kPickThreads);
  }
  // Others do.
  __device__ __forceinline__ void pick(int, const std::uint8_t*) const {}

  // All listed columns onto sums with their rows' scales, of rows m + 64 tile and columns n on; m
  // is the warp's. Afterwards the shared memory is free.
  template <int kTiles>
  __device__ __forceinline__ void add(int (&sums)[kTiles][kListedColumns / 2],
                                      const Outputs& outputs, int batch, std::int64_t m,
                                      std::int64_t n) const {
    cuda::named_barrier_wait(barriers_.full, kPickThreads);
    with_values(listed_.dtype, [&]<class T>(T) { add_all<T>(sums, outputs, batch, m, n); });
    wait();
  }

 private:
  static constexpr int kThreads = 128;

  __device__ __forceinline__ void wait() const {
    cuda::named_barrier_wait(barriers_.own, kThreads);
  }

  template <class T, int kTiles>
  __device__ __forceinline__ void add_all(int (&sums)[kTiles][kListedColumns / 2],
                                          const Outputs& outputs, int batch, std::int64_t m,
                                          std::int64_t n) const {
    const T* rows[2 * kTiles];
#pragma unroll
    for (int r = 0; r < 2 * kTiles; ++r)
      rows[r] = static_cast<const T*>(listed_.values) + batch * listed_.batch +
                fragment_row(m, r, outputs.rows) * listed_.row;
#pragma unroll 1
    for (int first = 0; first < count_; first += kPlaces) {
      StepValues<T, kTiles> values;
      values.read(rows, first, count_, listed_.vectors);
      if (first > 0) gather(first, n, outputs.columns);
      add_steps(sums, values, codes_);
    }
  }

  __device__ __forceinline__ void gather(int first, std::int64_t n, std::int64_t columns) const {
    wait();
    gather_codes<FactorOrder>(listed_, first, min(count_ - first, kPlaces), kPlaces, n, columns,
                              static_cast<int>(threadIdx.x) % kThreads, codes_);
    cuda::show_to_products();
    wait();
  }

  const Listed& listed_;
  std::uint16_t* codes_;
  TileBarriers barriers_;
  int count_;
};

// --- Few tokens ---------------------------------------------------------------------------------

// Eight rows and sixteen columns of the sums of ListedRows, as a warp's tensor cores have them,
// from number `from` and column `column` on. Those beyond the last row are the last one again. Lane
// l has rows 2 (l % 4) and the next at columns l / 4 and eight further.
class RowFragment {
 public:
  float t[4];

  __device__ __forceinline__ RowFragment(const ListedRows& rows, int from, int column)
      : left_(rows.count - from - lane() % 4 * 2) {
    // The lane's own columns are four for each lane before it.
    at_ = rows.sums - 4 * lane() + (rows.count - max(left_, 1)) * rows.pitch + column + lane() / 4;
    pitch_ = left_ > 1 ? rows.pitch : 0;
  }
  // Sums that are int32 become float32, with their rows' scales.
  __device__ __forceinline__ void load(bool integers, const float (&scales)[2]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int held = *place(i);
      t[i] = integers ? static_cast<float>(held) * scales[i % 2] : __int_as_float(held);
    }
  }
  __device__ __forceinline__ void store() const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (i % 2 < left_) *place(i) = __float_as_int(t[i]);
  }

 private:
  static __device__ __forceinline__ int lane() {
    return static_cast<int>(threadIdx.x) % cuda::kWarp;
  }
  __device__ __forceinline__ int* place(int i) const { return at_ + i % 2 * pitch_ + i / 2 * 8; }

  int left_, pitch_;  // rows from the lane's first on
  int* at_;
};

// The outliers of the one tile of a block, whose cluster splits k between `Share::parts` blocks: a
// block picks the codes of its part, and gets the others' from them.
template <class Share>
class ShareSteps {
 public:
  static constexpr bool kListed = true;
  __device__ __forceinline__ ShareSteps(const Listed& listed, const Share& share, int boxes,
                                        std::uint16_t* codes)
      : listed_(listed),
        share_(share),
        boxes_(boxes),
        codes_(codes),
        columns_(listed),
        picker_(listed, columns_, static_cast<int>(threadIdx.x) / cuda::kWarp) {
    picker_.clear(codes);
  }

  __device__ __forceinline__ void pick(int box, const std::uint8_t* rows) const {
    picker_.pick(share_.box(boxes_, share_.part) + box, rows, codes_);
  }
  __device__ __forceinline__ void touch_row(const Outputs& outputs, int batch,
                                            std::int64_t m) const {
    touch_values(listed_, columns_.count(), outputs, batch, m);
  }

  // Onto the rows' 128 columns from n on. The 128 threads call it, after a barrier of the cluster
  // behind the last pick.
  __device__ __forceinline__ void add(const ListedRows& rows, float scales, std::int64_t columns,
                                      int batch, std::int64_t n, float*) const {
    with_values(listed_.dtype, [&]<class T>(T) { add_all<T>(rows, scales, columns, batch, n); });
  }

 private:
  static constexpr int kThreads = 128;

  __device__ __forceinline__ void wait() const { cuda::named_barrier_wait(1, kThreads); }

  template <class T>
  __device__ __forceinline__ void add_all(const ListedRows& rows, float scales,
                                          std::int64_t columns, int batch, std::int64_t n) const {
    collect_codes(columns_, share_, boxes_, codes_);
    wait();
    const int count = columns_.count();
    int first = 0;
    do {
      const int held = min(count - first, kPlaces);
      if (first > 0) {
        wait();
        gather_codes<MatrixOrder>(listed_, first, held, kPlaces, n, columns,
                                  static_cast<int>(threadIdx.x), codes_);
        wait();
      }
      add_steps<T>(rows, scales, batch, first, held);
      first += kPlaces;
    } while (first < count);
  }

  // Steps over `held` places from number `first` of the list on, eight rows at a time.
  template <class T>
  __device__ __forceinline__ void add_steps(const ListedRows& rows, float scales, int batch,
                                            int first, int held) const {
    constexpr int kRows = 8;
    const int lane = threadIdx.x % cuda::kWarp;
    const T* values = static_cast<const T*>(listed_.values) + batch * listed_.batch +
                      rows.m * listed_.row + first;
#pragma unroll 1
    for (int from = 0; from < rows.count; from += kRows) {
      const int row = min(from + lane / 4, rows.count - 1);
      std::uint32_t words[kSteps][2];
#pragma unroll
      for (int i = 0; i < 2 * kSteps; ++i)
        words[i / 2][i % 2] = two_values(values + row * rows.step * listed_.row,
                                         8 * i + lane % 4 * 2, held, listed_.vectors);
      const float own[2] = {__shfl_sync(cuda::kAllLanes, scales, from + lane % 4 * 2),
                            __shfl_sync(cuda::kAllLanes, scales, from + lane % 4 * 2 + 1)};
#pragma unroll 2
      for (int column = 0; column < kListedColumns; column += 16) {
        RowFragment sums(rows, from, column);
        sums.load(first == 0, own);
#pragma unroll
        for (int step = 0; step < kSteps; ++step)
          if (step * kStepPlaces < held) add_step<T>(sums, words[step], step, column);
        __syncwarp();  // a row beyond the last was read in place of the last one
        sums.store();
      }
    }
    __syncwarp();
  }
  // Codes are the first factor: their rows are columns of the output.
  template <class T>
  __device__ __forceinline__ void add_step(RowFragment& sums, const std::uint32_t (&values)[2],
                                           int step, int column) const {
    const int lane = threadIdx.x % cuda::kWarp;
    const int place = step * kStepPlaces + lane % 8 + lane / 16 * 8;
    std::uint32_t codes[4];
    cuda::load_matrices_transposed(
        codes, cuda::shared_address(codes_ + MatrixOrder::slot(place, column + lane / 8 % 2 * 8)));
    cuda::multiply_add_floats<T>(sums.t, codes, values[0], values[1]);
  }

  const Listed& listed_;
  Share share_;
  int boxes_;
  std::uint16_t* codes_;
  ListedColumns columns_;
  PlacePicker<MatrixOrder, kThreads / cuda::kWarp> picker_;
};

}  // namespace planq::linear::wgmma
