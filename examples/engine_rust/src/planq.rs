//! planq.h for Rust: what this program uses of it, and on top of that plans that end by themselves
//! and errors as values.

use std::ffi::{c_char, c_void, CStr, CString};
use std::fmt;
use std::ptr;

/// The declarations of planq.h, name by name.
mod c {
    use std::ffi::{c_char, c_void};
    use std::mem::size_of;

    #[repr(C)]
    #[derive(Clone, Copy)]
    pub struct Stream {
        pub backend: i32,
        pub device: i32,
        pub threads: i32,
        pub unused: i32,
        pub handle: *mut c_void,
    }

    #[repr(C)]
    pub struct Tensor {
        pub data: *mut c_void,
        pub device_type: i32,
        pub device_id: i32,
        pub ndim: i32,
        pub code: u8,
        pub bits: u8,
        pub lanes: u16,
        pub shape: *mut i64,
        pub strides: *mut i64,
        pub byte_offset: u64,
    }

    #[repr(C)]
    pub struct Operand {
        pub name: *const c_char,
        pub kind: i32,
        pub unused: i32,
        pub tensors: *const *mut Tensor,
        pub count: usize,
        pub value: i64,
    }

    #[repr(C)]
    pub struct Extent {
        pub name: *const c_char,
        pub value: i64,
    }

    // The layouts of planq.h, where addresses have 64 bits.
    const _: () = assert!(
        size_of::<Stream>() == 24
            && size_of::<Tensor>() == 48
            && size_of::<Operand>() == 40
            && size_of::<Extent>() == 16
    );

    #[link(name = "planq")]
    extern "C" {
        pub fn planq_code_name(code: i32) -> *const c_char;
        pub fn planq_last_error() -> *const c_char;
        pub fn planq_select(
            stream: *const Stream,
            descriptor: *const c_char,
            preference: *const c_char,
            plan: *mut u64,
        ) -> i32;
        pub fn planq_plan_release(plan: u64) -> i32;
        pub fn planq_plan_sku(
            plan: u64,
            buffer: *mut c_char,
            capacity: usize,
            size: *mut usize,
        ) -> i32;
        pub fn planq_plan_workspace_size(
            plan: u64,
            extents: *const Extent,
            count: usize,
            bytes: *mut usize,
        ) -> i32;
        pub fn planq_run(
            plan: u64,
            stream: *const Stream,
            workspace: *mut c_void,
            workspace_bytes: usize,
            operands: *const Operand,
            count: usize,
        ) -> i32;
    }
}

const HOST: i32 = 0; // PLANQ_HOST
const TENSORS: i32 = 0; // PLANQ_TENSORS
const CPU: i32 = 1; // DLPack's number of the host

/// What planq refused, and why.
#[derive(Debug)]
pub struct Error {
    pub code: String,
    pub sentence: String,
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter) -> fmt::Result {
        write!(to, "{}: {}", self.code, self.sentence)
    }
}

impl std::error::Error for Error {}

fn check(code: i32) -> Result<(), Error> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: both are texts with a final zero, and copied before the next call.
    let text = |from: *const c_char| unsafe { CStr::from_ptr(from).to_string_lossy().into_owned() };
    unsafe {
        Err(Error {
            code: text(c::planq_code_name(code)),
            sentence: text(c::planq_last_error()),
        })
    }
}

/// An element type: its code and bits in DLPack.
pub trait Element {
    const CODE: u8;
    const BITS: u8;
}

impl Element for i8 {
    const CODE: u8 = 0;
    const BITS: u8 = 8;
}

impl Element for f32 {
    const CODE: u8 = 2;
    const BITS: u8 = 32;
}

/// An operand of a call: memory that is borrowed until the call has returned. Read and written
/// operands are both borrowed as mutable, since planq.h has one type for them.
pub struct Operand<'a> {
    name: &'a CStr,
    data: *mut c_void,
    shape: Vec<i64>,
    code: u8,
    bits: u8,
    borrowed: std::marker::PhantomData<&'a mut [u8]>,
}

impl<'a> Operand<'a> {
    /// Panics where the memory is not as large as the shape: planq cannot see that.
    pub fn new<T: Element>(name: &'a CStr, memory: &'a mut [T], shape: &[i64]) -> Self {
        let elements: i64 = shape.iter().product();
        assert_eq!(
            usize::try_from(elements),
            Ok(memory.len()),
            "{name:?} of shape {shape:?}"
        );
        Operand {
            name,
            data: memory.as_mut_ptr().cast(),
            shape: shape.to_vec(),
            code: T::CODE,
            bits: T::BITS,
            borrowed: std::marker::PhantomData,
        }
    }

    fn described(&mut self) -> c::Tensor {
        c::Tensor {
            data: self.data,
            device_type: CPU,
            device_id: 0,
            ndim: self.shape.len() as i32,
            code: self.code,
            bits: self.bits,
            lanes: 1,
            shape: self.shape.as_mut_ptr(),
            strides: ptr::null_mut(), // compact, in C order
            byte_offset: 0,
        }
    }
}

/// The threads of the host that plans run on.
#[derive(Clone, Copy)]
pub struct HostStream(c::Stream);

impl HostStream {
    pub fn new(threads: i32) -> Self {
        let handle = ptr::null_mut();
        HostStream(c::Stream {
            backend: HOST,
            device: 0,
            threads,
            unused: 0,
            handle,
        })
    }
}

/// A plan on the host, which ends with this object.
pub struct Plan(u64);

impl Plan {
    /// `descriptor` and `preference` are JSON.
    pub fn select(stream: HostStream, descriptor: &str, preference: &str) -> Result<Plan, Error> {
        let descriptor = CString::new(descriptor).expect("JSON without a zero");
        let preference = CString::new(preference).expect("JSON without a zero");
        let mut plan = 0;
        // SAFETY: all of it lives until the call has returned.
        let code = unsafe {
            c::planq_select(
                &stream.0,
                descriptor.as_ptr(),
                preference.as_ptr(),
                &mut plan,
            )
        };
        check(code).map(|()| Plan(plan))
    }

    pub fn sku(&self) -> Result<String, Error> {
        let mut size = 0;
        // SAFETY: without a buffer the call answers the size alone.
        check(unsafe { c::planq_plan_sku(self.0, ptr::null_mut(), 0, &mut size) })?;
        let mut text = vec![0u8; size];
        // SAFETY: the buffer is as large as is said.
        check(unsafe {
            c::planq_plan_sku(self.0, text.as_mut_ptr().cast(), size, ptr::null_mut())
        })?;
        text.pop(); // the final zero
        Ok(String::from_utf8(text).expect("a SKU is ASCII"))
    }

    /// Bytes of workspace that are enough for every run.
    pub fn workspace_size(&self) -> Result<usize, Error> {
        let mut bytes = 0;
        // SAFETY: no extents are given, and none is read.
        check(unsafe { c::planq_plan_workspace_size(self.0, ptr::null(), 0, &mut bytes) })?;
        Ok(bytes)
    }

    /// Runs the plan on operands, which may come in any order. The plan needs no workspace.
    pub fn run(&self, stream: HostStream, operands: &mut [Operand]) -> Result<(), Error> {
        let mut tensors: Vec<c::Tensor> = operands.iter_mut().map(Operand::described).collect();
        let pointers: Vec<*mut c::Tensor> = tensors.iter_mut().map(|each| each as _).collect();
        let given: Vec<c::Operand> = operands
            .iter()
            .zip(&pointers)
            .map(|(operand, tensor)| c::Operand {
                name: operand.name.as_ptr(),
                kind: TENSORS,
                unused: 0,
                tensors: tensor,
                count: 1,
                value: 0,
            })
            .collect();
        // SAFETY: memory and descriptions live until the call has returned, which on the host is
        // when the work has ended.
        check(unsafe {
            c::planq_run(
                self.0,
                &stream.0,
                ptr::null_mut(),
                0,
                given.as_ptr(),
                given.len(),
            )
        })
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: the number is this object's own, and is not used again.
        unsafe { c::planq_plan_release(self.0) };
    }
}
